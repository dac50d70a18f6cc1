"""``ramsis bound``: what no scheduler can beat."""

import json
from pathlib import Path

import pytest

from ramsis.bounds import cascade_bound, fluid_bound
from ramsis.cluster import ServiceTimes
from ramsis.profiles import Confidences, load
from tests.cli.command import refused
from tests.profiles.samples import drawn_samples


def options(profile: Path, load: str = "50", slo_ms: str = "100") -> list[str]:
    return ["--profiles", str(profile), "--slo-ms", slo_ms, "--workers", "4", "--load", load]


def test_rows_are_the_solutions_of_the_fluid_program(run, tiny, tiny_file):
    ran = run("bound", *options(tiny_file, "50,900,9000"), "--max-batch", "8", "--json")
    assert (ran.code, ran.err) == (0, "")
    rows = ran.rows
    assert [row["load_qps"] for row in rows] == [50.0, 900.0, 9000.0]
    for row in rows:
        found = fluid_bound(tiny.latency_table("p95", 8), slo_ms=100.0, workers=4,
                            load_qps=row["load_qps"], max_batch=8)
        assert (row["workers"], row["slo_ms"]) == (4, 100.0)
        assert row["upper_bound"] == pytest.approx(found.effective_accuracy)
        assert row["served_fraction"] == pytest.approx(found.served_fraction)
        assert row["capacity_qps"] == pytest.approx(found.capacity_qps)
        assert row["worker_price"] == pytest.approx(found.worker_price[0])
        assert sum(part["share"] for part in row["mix"]) == pytest.approx(found.served_fraction)
        worth = {"small": 0.6, "medium": 0.75, "large": 0.9}
        assert sum(worth[part["model"]] * part["share"] for part in row["mix"]) == (
            pytest.approx(found.effective_accuracy))


def test_the_table_says_what_is_served_and_by_which_mix(run, tiny_file):
    ran = run("bound", *options(tiny_file, "900,9000"), "--max-batch", "8", "--wide")
    header, middle, over = ran.out.splitlines()
    assert header.split()[:4] == ["load", "(QPS)", "upper", "bound"]
    assert "100.00%" in middle
    assert over.split()[3] == "19.75%"  # 1778 of 9000
    assert "small b=8 (20%)" in over


@pytest.mark.parametrize("terms", [("--violation-price", "2"), ("--max-violation", "0.81")])
@pytest.mark.parametrize("several", [False, True])
def test_on_terms_the_optimum_stands_beside_the_bound(run, tiny_file, terms, several):
    """The workers can answer 1778 of the 9000 queries per second."""
    slo_ms = "100:0.5,90:0.5" if several else "100"
    given = (*options(tiny_file, "9000", slo_ms), "--max-batch", "8")
    free, row = (run("bound", *given, *more, "--json").rows[0]
                 for more in ((), terms))
    assert (free["violation_price"], free["max_violation_rate"]) == (0.0, None)
    assert free["upper_bound"] == pytest.approx(free["effective_accuracy"])
    price = row["violation_price"]
    assert price == (2.0 if terms[0] == "--violation-price" else 0.0)
    assert row["violation_rate"] == pytest.approx(1.0 - row["served_fraction"])
    assert row["violation_rate"] <= free["violation_rate"] + 1e-9
    assert row["upper_bound"] == pytest.approx(
        row["effective_accuracy"] - price * row["violation_rate"])
    if not price:
        assert row["violation_rate"] <= row["max_violation_rate"] == 0.81
    header = run("bound", *given, *terms, "--wide").out.splitlines()[0]
    assert "effective accuracy  violations" in header
    assert "served" not in header


def test_poisson_arrivals_that_cannot_keep_the_limit_are_a_note(run, tmp_path):
    """A batch of 2 leaves 1 ms to gather in, and one at a time is too slow for all."""
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({
        "format": "ramsis.profile/1", "name": "set", "models": [{
            "name": "only", "accuracy": 0.8,
            "batches": [{"batch": 1, "p95_ms": 60.0}, {"batch": 2, "p95_ms": 99.0}]}]}))
    given = ("--profiles", profile, "--slo-ms", "100", "--workers", "1", "--load", "18",
             "--max-batch", "2", "--service", "p95")
    ran = run("bound", *given, "--max-violation", "0.01", "--json")
    assert ran.code == 0
    assert ran.err.startswith("note: Poisson arrivals: --max-violation: too few workers")
    (row,) = ran.rows
    assert row["upper_bound"] == pytest.approx(0.8)
    assert row["poisson_upper_bound"] is None
    least = float(ran.err.split()[-1])
    (row,) = run("bound", *given, "--max-violation", str(least), "--json").rows
    assert row["poisson_upper_bound"] == pytest.approx(0.8 * (1.0 - least), abs=1e-5)


@pytest.mark.parametrize("load", ["1e-300", "1e308"])
def test_any_load_has_an_answer(run, tiny_file, load):
    (row,) = run("bound", *options(tiny_file, load), "--json").rows
    assert 0 <= row["upper_bound"] <= 0.9 + 1e-9


def test_statistics_and_batches_change_the_bound(run, tmp_path):
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({
        "format": "ramsis.profile/1", "name": "set", "models": [{
            "name": "only", "accuracy": 0.8,
            "batches": [{"batch": 1, "p95_ms": 20.0, "mean_ms": 10.0},
                        {"batch": 2, "p95_ms": 20.0, "mean_ms": 10.0}]}]}))

    def capacity(*more: str) -> float:
        ran = run("bound", *options(profile), "--json", *more)
        return float(ran.rows[0]["capacity_qps"])

    assert capacity("--max-batch", "1") == pytest.approx(200.0)
    assert capacity("--max-batch", "2") == pytest.approx(400.0)
    assert capacity("--max-batch", "1", "--service", "mean") == pytest.approx(400.0)
    refused(run("bound", *options(profile), "--service", "p99"), 2, "only", "batch 1", "p99_ms")


@pytest.mark.parametrize(("more", "code", "words"), [
    (("--slo-ms", "nan"), 2, ("--slo-ms", "got nan", "finite")),
    (("--slo-ms", "3.9"), 4, ("--slo-ms", "got 3.9", "at least 4 ms")),
    (("--load", "0"), 2, ("load", "'0'", "> 0")),
    (("--max-batch", "1000000000"), 2, ("--max-batch", "1000000000 is not in the range")),
    (("--violation-price", "nan"), 2, ("--violation-price", "got nan", "from 0 to 1000000")),
    (("--max-violation", "-0.1"), 2, ("--max-violation", "got -0.1", "fraction in [0, 1]")),
    (("--load", "50,9000", "--max-batch", "8", "--max-violation", "0.8"), 4,
     ("--max-violation", "9000 QPS", "got 0.8", "more workers, or at least 0.80247")),
], ids=str)
def test_bad_options_get_one_line(run, tiny_file, more, code, words):
    refused(run("bound", *options(tiny_file), *more), code, *words)


@pytest.fixture
def cascades_file(tmp_path):
    """Two models with confidences, and one that another beats everywhere."""
    samples = drawn_samples()
    path = tmp_path / "cascades.json"
    path.write_text(json.dumps({
        "format": "ramsis.profile/1", "name": "sure", "models": [
            {"name": name, "accuracy": accuracy, "batches": [
                {"batch": 1, "p95_ms": p95_ms}, {"batch": 4, "p95_ms": 1.5 * p95_ms}]}
            for name, accuracy, p95_ms in (
                ("small", float(samples["small"][0].mean()), 4.0), ("beaten", 0.5, 5.0),
                ("large", float(samples["large"][0].mean()), 60.0))],
        "confidences": Confidences.of(samples).to_document()}))
    return path


def test_cascades_have_a_bound_beside_that_of_one_model(run, cascades_file):
    given = options(cascades_file, "250,400")
    ran, alone = (run("bound", *given, *more, "--service", "p95", "--json")
                  for more in (("--cascades",), ()))
    assert (ran.code, ran.err) == (0, "")
    profile = load(cascades_file)
    assert profile.confidences is not None
    for row, one in zip(json.loads(ran.out)["rows"], json.loads(alone.out)["rows"], strict=True):
        found = cascade_bound(ServiceTimes.of_all(profile, "p95", 32), profile.confidences,
                              slo_ms=100.0, workers=4, load_qps=row["load_qps"])
        assert row["upper_bound_one_model"] == one["upper_bound"]
        assert row["poisson_upper_bound_one_model"] == one["poisson_upper_bound"]
        assert row["upper_bound"] == found.upper_bound > one["upper_bound"] + 0.003
        assert one["poisson_upper_bound"] < row["poisson_upper_bound"] <= row["upper_bound"]
        assert row["time_price"] == found.time_price > 0
        assert row["second_opinions"] == found.second_share > 0.05
        assert row["second_opinions"] == pytest.approx(sum(
            second["share"] for part in row["mix"] for second in part["second"]))
    header, *rows = run("bound", *given, "--cascades", "--wide").out.splitlines()
    assert header.split("  ")[1:3] == ["upper bound", "upper bound, Poisson"]
    assert all("then large b=" in row for row in rows)


@pytest.mark.parametrize(("more", "words"), [
    (("--slo-ms", "100:0.5,90:0.5"), ("single type and a single --slo-ms",)),
    (("--max-violation", "0.1"), ("--violation-price in place of --max-violation",)),
    (("--profiles", "image-cpu"), ("--cascades", "no confidences", "got 'image-cpu'", "import")),
], ids=str)
def test_what_has_no_bound_with_cascades_is_refused(run, cascades_file, more, words):
    refused(run("bound", *options(cascades_file), "--cascades", *more), 2, *words)


TRACE = ["--trace", "day", "--duration-s", "7", "--slo-ms", "400", "--rate-per-worker", "41.5"]


def test_a_trace_has_a_row_of_worker_seconds(run):
    given = (*TRACE, "--startup-s", "1.3", "--json")
    some, none = (run("bound", *given, "--max-violation", share).rows[0]
                  for share in ("0.2", "0"))
    assert none["worker_s"] >= none["requests"] / 41.5 * (1 - 1e-6)
    assert some["worker_s"] < none["worker_s"]
    assert some["peak_workers"] <= none["peak_workers"]
    assert len(none["time_s"]) == len(none["workers_over_time"]) + 1


@pytest.mark.parametrize(("more", "code", "words"), [
    (("--startup-s", "9", "--max-violation", "0"), 2, ("--startup-s", "got 9", "6.9")),
    (("--profiles", "digits-cpu"), 2, ("either --profiles or --rate-per-worker",)),
    (("--load", "7"), 2, ("either --load or --trace",)),
    (("--workers", "7"), 2, ("--workers is for --load",)),
    (("--cascades",), 2, ("--cascades is for --load",)),
    ((), 2, ("no target",)),
    (("--max-workers", "2", "--max-violation", "0.01"), 4, ("2 workers do not", "at least 0.")),
], ids=str)
def test_bad_options_of_a_trace_get_one_line(run, more, code, words):
    refused(run("bound", *TRACE, *more), code, *words)


@pytest.mark.parametrize(("lines", "requests"), [
    ("3.5\n3.5\n", "2 requests"), ("3.5\n", "1 requests"), ("0,0.001\n9,0.001\n", "0 requests"),
])
def test_a_trace_without_two_instants_is_refused(run, tmp_path, lines, requests):
    trace = tmp_path / "trace.txt"
    trace.write_text(lines)
    unit = () if "," in lines else ("--unit", "s")
    refused(run("bound", "--trace", trace, *unit, "--slo-ms", "400", "--rate-per-worker", "4",
                "--max-violation", "0"), 3, "trace.txt: ", f"got '{requests}'", "takes time")
