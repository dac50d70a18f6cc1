"""``ramsis scale``: rows, files and what is refused."""

import json

import pytest

from ramsis.cli.main import _run
from ramsis.schemas import check_schema
from tests.cli.command import refused

_TRACE = ["--trace", "day", "--scale", "0.08", "--stretch", "2"]


@pytest.fixture(scope="module")
def small(tiny_file):
    """A fleet of up to four workers, of which the load needs about two."""
    return ["--profiles", str(tiny_file), "--slo-ms", "100", *_TRACE,
            "--min-effective-accuracy", "0.75", "--max-workers", "4", "--levels", "4"]


@pytest.fixture(scope="module")
def folder(small, tmp_path_factory):
    out = tmp_path_factory.mktemp("scale") / "out"
    assert _run(["scale", *small, "--startup-s", "10", "--compare", "--json",
                 "--cost-per-worker-s", "0.002", "--out", str(out)]) == 0
    return out


def test_no_row_that_meets_the_target_is_below_the_bound(folder):
    results = json.loads((folder / "results.json").read_text())
    rows = results["rows"]
    assert [row["scheduler"] for row in rows][:3] == ["ramsis", "static", "static"]
    assert {row["tuned"] for row in rows if row["scheduler"] == "hpa"} == {True, False}
    meeting = [row for row in rows if row["meets_target"]]
    assert meeting
    for row in meeting:
        assert row["worker_s"] >= results["bound"]["worker_s"]
        assert row["violation_rate"] <= 0.001
        assert row["effective_accuracy"] >= 0.75 - 1e-9
    for row in rows:
        assert row["cost"] == pytest.approx(0.002 * row["worker_s"])
    for tuned in (True, False):  # over time: the cheapest rule, besides ours
        rules = [row for row in rows[1:] if row["tuned"] == tuned]
        (drawn,) = [row for row in rules if "over_time" in row]
        assert drawn["worker_s"] == min(row["worker_s"] for row in rules if row["meets_target"])


def test_the_folder_is_valid_and_its_tables_are_policy_sets(run, folder):
    sets = sorted(str(path) for path in (folder / "tables").iterdir())
    ran = run("validate", folder / "scaling.json", folder / "results.json", *sets)
    assert (ran.code, ran.err) == (0, "")
    assert "scaling policy, 1 to 4 workers" in ran.out
    document = json.loads((folder / "scaling.json").read_text())
    low, high = (document["promise"]["workers"][name] for name in ("low", "high"))
    assert 1 <= low <= document["promise"]["workers"]["mean"] <= high
    document["tables"][0]["folder"] = "tables/none"
    (folder / "damaged.json").write_text(json.dumps(document))
    refused(run("validate", folder / "damaged.json"), 3, "no such folder", "tables/none")


def test_a_folder_that_holds_a_policy_is_left_alone(run, folder, small):
    refused(run("scale", *small, "--startup-s", "10", "--out", folder), 2,
            "another scaling policy")


@pytest.mark.parametrize(("options", "code", "words"), [
    (["--startup-s", "4000"], 2, ("--startup-s", "longer than the trace")),
    (["--startup-s", "0", "--min-workers", "5"], 2, ("--min-workers", "--max-workers 4")),
    (["--startup-s", "0", "--interval-s", "600"], 2, ("--interval-s", "too short")),
    (["--startup-s", "0", "--min-effective-accuracy", "0.99"], 4, ("0.99", "accuracy")),
])
def test_bad_input_is_one_line_and_nothing_is_written(run, small, tmp_path, options, code, words):
    refused(run("scale", *small, *options, "--out", tmp_path / "out"), code, *words)
    assert not (tmp_path / "out").exists()


def test_a_trace_of_one_instant_is_refused(run, tmp_path):
    trace = tmp_path / "instant.txt"
    trace.write_text("5\n5\n5\n")
    refused(run("scale", "--profiles", "image-cpu", "--slo-ms", "350", "--trace", trace,
                "--unit", "s", "--startup-s", "0", "--out", tmp_path / "out"), 3, "one instant")


@pytest.mark.parametrize(("loads", "startup", "words"), [
    ((0, 0, 30, 30), "10", "no load on the first half"),
    ((30, 30, 0, 0), "10", "no load on the second half"),
    ((30, 30, 30, 0), "200", "half of the trace that the policy is tried on"),
])
def test_halves_that_say_nothing_are_refused_before_the_work(run, tmp_path, loads, startup, words):
    trace = tmp_path / "halves.txt"
    trace.write_text("".join(f"{120 * at} {load}\n" for at, load in enumerate(loads)))
    refused(run("scale", "--profiles", "image-cpu", "--slo-ms", "350", "--trace", trace,
                "--startup-s", startup, "--out", tmp_path / "out"), 2, words)
    assert not (tmp_path / "out").exists()


def test_most_workers_that_are_too_few_are_told_the_best(run, small, tmp_path):
    refused(run("scale", *small, "--max-workers", "1", "--startup-s", "10",
                "--out", tmp_path / "out"), 4, "up to 1 workers", "effective accuracy")


def test_simulate_plays_the_policy_and_the_rules_as_scale_does(run, tmp_path, folder):
    known = json.loads((folder / "results.json").read_text())["rows"]
    rules = {row["scheduler"] + ":" + ",".join(
        f"{name}={value}" for name, value in row["parameters"].items()): row
        for row in known[1:] if row["tuned"] or row["scheduler"] == "hpa"}
    ran = run("simulate", "--scaling", folder / "scaling.json",
              *[word for rule in rules for word in ("--scaling", rule.strip(":"))],
              *_TRACE, "--from-s", "300", "--json",
              "--csv", tmp_path / "rows.csv", "--plot", tmp_path / "figure.svg")
    assert ran.code == 0, ran.err
    check_schema(json.loads(ran.out), "ramsis.cli.output", "results-1", "stdout")
    rows = ran.rows
    for row, as_scaled in zip(rows, [known[0], *rules.values()], strict=True):
        for name in ("worker_s", "violation_rate", "effective_accuracy", "requests",
                     "meets_target"):
            assert row[name] == pytest.approx(as_scaled[name], rel=1e-12), row["scheduler"]
        series = row["over_time"]
        paid_s = 15.0 * sum(series["workers"])
        assert row["worker_s"] == pytest.approx(paid_s, rel=0.01)  # those that leave aside
    assert (tmp_path / "rows.csv").read_text().count("\n") == 1 + len(rows)
    assert "workers paid for" in (tmp_path / "figure.svg").read_text()


def test_simulate_begins_with_what_the_mean_load_needs(run, folder):
    static, _ = run("simulate", "--scaling", "static:workers=3", "--scaling", folder, "--load",
                    "40", "--duration-s", "60", "--json").rows
    assert static["worker_s"] == pytest.approx(3 * 60.0)
    assert static["over_time"]["workers"] == [3.0] * 4


@pytest.mark.parametrize(("options", "words"), [
    (["--scaling", "hpa"], ("--scaling", "folder")),
    (["--scaling", "nothing"], ("rule", "nothing")),
    (["--scaling", "FOLDER", "--workers", "3"], ("--workers", "--scaling")),
    (["--scaling", "FOLDER", "--from-s", "60"], ("--from-s", "less than 60")),
    (["--scaling", "FOLDER", "--scaling", "hpa:targ=2"], ("targ=2", "target")),
    (["--scaling", "FOLDER", "--stretch", "2"], ("--stretch", "--trace")),
    (["--from-s", "5"], ("--from-s", "--scaling")),
    (["--stretch", "5"], ("--stretch", "--scaling")),
])
def test_simulate_refuses_what_does_not_fit_scaling(run, folder, options, words):
    given = [str(folder) if word == "FOLDER" else word for word in options]
    refused(run("simulate", *given, "--load", "40", "--duration-s", "60"), 2, *words)


def test_a_profile_of_one_model_is_scaled(run, tiny_file, tmp_path):
    """Requests that are dropped have no model, and there is no second one to take for theirs."""
    ran = run("scale", "--profiles", tiny_file, "--models", "small", "--slo-ms", "100",
              "--trace", "day", "--scale", "0.08", "--max-workers", "3", "--levels", "4",
              "--startup-s", "15", "--max-violation", "0.2", "--json", "--out", tmp_path / "out")
    assert ran.rows[0]["meets_target"]


def test_the_report_shows_cost_against_violations_with_the_bound(run, tmp_path, folder):
    page = tmp_path / "page.html"
    ran = run("report", folder / "results.json", "--out", page)
    assert ran.code == 0, ran.err
    text = page.read_text()
    for words in ("<dt>SLO</dt><dd>100 ms</dd>", "<dt>start-up</dt><dd>10 s</dd>",
                  "<dt>min effective accuracy</dt><dd>0.75</dd>", "hpa (tuned)"):
        assert words in text
    assert "<dt>out</dt>" not in text
    results = json.loads((folder / "results.json").read_text())
    assert "Cost against violations" in text
    assert "bound (one model per request)" in text
    assert ("with one model per request no scheduler does with less than "
            f"{results['bound']['worker_s']:.0f}") in text
    ours = results["rows"][0]["over_time"]
    assert json.dumps(ours["workers"], separators=(",", ":")) in text.replace(", ", ",")
    assert "over_time" not in results["rows"][1] or results["rows"][1]["meets_target"]
    # Between its edges the plan of the bound pays for what the bound is.
    assert len(results["bound"]["time_s"]) == len(results["bound"]["workers"])
