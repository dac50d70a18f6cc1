"""What a page begins with, and what it says of how its results came to be."""

import html
import json
import re
from pathlib import Path
from typing import Any

import placement_milp
from ramsis import profiles
from ramsis.report.page import write_report
from ramsis.report.page.document import side_by_side
from ramsis.report.page.parts import PageTable, Section
from tests.placement.samples import problem
from tests.report.test_page import charts, printed

SERVED = ("--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 2)


def page_of(*sources: Path | str, out: Path) -> str:
    """The text of a page."""
    write_report(sources, out)
    return html.unescape(out.read_text())


def plan(folder: Path, policies: Path) -> Path:
    """A finished plan, as `ramsis plan` leaves it."""
    (folder / "plan.json").write_text(json.dumps({
        "format": "ramsis.plan/1", "words": ["7 workers do", "0.9412 accuracy", "worth 0.0021"],
        "inputs": {"options": ["--load", "731", "--min-accuracy", "0.94"]},
        "commands": ["ramsis capacity --load 731"],
        "verdict": {"workers": 7, "policies": policies.name, "effective_accuracy": 0.9412},
        "rows": [{"dispatch": "central-queue", "workers": 7, "workers_bound": 6,
                  "accuracy": 0.95, "effective_accuracy": 0.9412, "violation_rate": 0.0003}]}))
    return folder


def test_a_plan_begins_with_its_verdict_and_ends_with_its_commands(tmp_path, run):
    made = run("generate", *SERVED, "--load", "311", "--max-queue", 8, "--out", tmp_path / "set")
    assert made.code == 0, made.err
    text = page_of(plan(tmp_path, tmp_path / "set"), out=tmp_path / "page.html")
    assert f"<h1>Plan: {tmp_path.name}</h1>" in text
    head = text[text.index("<body>"):text.index("<main>")]
    assert [head.index(line) for line in ("7 workers do", "0.9412 accuracy", "worth 0.0021")]
    assert re.search(r"\b20\d\d-\d\d-\d\d, ramsis", head)
    assert "ramsis capacity --load 731" in text
    assert "Policies: " in text  # the set that the verdict names
    assert "min accuracy" in text
    assert "<dt>load</dt><dd>731 queries/s</dd>" in text


def test_a_set_and_a_placement_say_which_commands_made_them(tmp_path, run):
    out = tmp_path / "set"
    for load in (311, 517):
        made = run("generate", *SERVED, "--load", load, "--max-queue", 8, "--out", out)
        assert made.code == 0, made.err
    commands = json.loads((out / "manifest.json").read_text())["commands"]
    assert [re.findall(r"--load (\d+)", one) for one in commands] == [["311"], ["517"]]
    assert run("validate", out).code == 0
    text = page_of(out, out=tmp_path / "page.html")
    assert all(one in text for one in commands)
    placed = tmp_path / "placed.json"
    assert run("place", "digits", "--out", placed, "--preset", "proteus").code == 0
    assert "--preset proteus" in page_of(placed, out=tmp_path / "page.html")
    assert run("validate", placed).code == 0


def test_a_worker_that_two_models_share_is_counted_once(tmp_path):
    found = placement_milp.place(placement_milp.read_problem("digits"))
    shared = [group for group in found.groups if len(group.uses) > 1]
    assert shared  # else there is nothing to count twice
    placement_milp.write_placement(found, tmp_path / "a.json")
    text = page_of(tmp_path / "a.json", out=tmp_path / "page.html")
    table = text[text.index("What runs where"):text.index("What families get")]
    counts = re.findall(r'<tr><td[^>]*>[^<]*</td><td[^>]*>(\d+)</td>', table)
    assert sum(map(int, counts)) == found.workers_in_use
    assert table.count("the same") == sum(len(group.uses) - 1 for group in found.groups)
    assert "What one more worker is worth" in text
    assert f"{found.cost_per_hour:.6g} per hour" in text


def test_a_model_has_one_colour_on_all_pages(tmp_path, run):
    out = tmp_path / "set"
    assert run("generate", *SERVED, "--load", "311,903", "--max-queue", 8, "--out", out).code == 0
    played = printed(tmp_path / "played.json", "simulate", *SERVED, "--load", "311",
                     "--duration-s", 2, "--policy", out)
    shades: dict[str, set[float]] = {}
    for source in (out, played, "digits-cpu"):
        for chart in charts(page_of(source, out=tmp_path / "page.html")).values():
            if not chart.get("of_models"):
                continue
            pairs = ([(one["name"], one["shade"]) for one in chart["frames"][0]["series"]]
                     if chart["kind"] == "curves" else
                     zip(chart["models" if chart["kind"] == "map" else "series"],
                         chart["shade"], strict=True))
            for name, shade in pairs:
                shades.setdefault(name, set()).add(shade)
    assert len(shades) == 8
    assert all(len(found) == 1 for found in shades.values())
    assert len(set.union(*shades.values())) == len(shades)


def test_an_axis_of_violations_goes_up_to_the_budget(tmp_path):
    played = printed(tmp_path / "played.json", "simulate", *SERVED, "--load", "211,311",
                     "--duration-s", 2, "--scheduler", "jellyfish-plus")
    axis = charts(page_of(played, out=tmp_path / "page.html"))["Violations"]["y"]
    assert axis["reach"] == 0.001
    row = {"scheduler": "greedy", "workers": 3, "workers_bound": 2, "slo_ms": 100, "gap": 1,
           "clear": True, "max_violation": 0.017, "violation_rate": 1e-10}
    (tmp_path / "a.json").write_text(json.dumps({"rows": [row, {**row, "scheduler": "other"}]}))
    drawn = charts(page_of(tmp_path / "a.json", out=tmp_path / "page.html"))
    assert drawn["Violations: promise, simulation, and what is allowed"]["x"]["reach"] == 0.017


def test_two_runs_stand_side_by_side(tmp_path):
    def played(scheme: str) -> tuple[Path, dict[str, Any]]:
        path = printed(tmp_path / f"{scheme}.json", "simulate", *SERVED, "--load", "731",
                       "--duration-s", 2, "--scheduler", scheme)
        return path, json.loads(path.read_text())["rows"][0]

    (first, one), (second, other) = played("greedy"), played("jellyfish-plus")
    text = page_of(first, second, out=tmp_path / "page.html")
    table = text[text.index("Simulation: side by side"):text.index("<section")]
    more = other["effective_accuracy"] - one["effective_accuracy"]
    for value in (f"{one['effective_accuracy']:.4f}", f"{other['effective_accuracy']:.4f}",
                  f"{more:+.4f}"):
        assert f">{value}<" in table


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    runs = [Section("Simulation", name, (), (), (), (), measures={"accuracy": (value, ".4f")})
            for name, value in (("a", 0.80001), ("b", 0.8))]
    (table,) = side_by_side(runs)
    assert isinstance(table, PageTable)
    assert table.rows[0]["more"] == "+0.0000"


def test_a_simulated_trace_is_shown_over_time(tmp_path):
    trace = tmp_path / "arrivals.csv"
    times = [i / 317 for i in range(951)] + [3 + i / 901 for i in range(3604)]
    trace.write_text("time_s\n" + "".join(f"{time:.6f}\n" for time in times))
    played = printed(tmp_path / "played.json", "simulate", *SERVED, "--trace", trace,
                     "--scheduler", "greedy", "--scheduler", "jellyfish-plus")
    bins = json.loads(played.read_text())["rows"][0]["over_time"]
    assert max(bins["load_qps"]) > 2 * min(bins["load_qps"])
    drawn = charts(page_of(played, out=tmp_path / "page.html"))
    (load,) = drawn["Load over time, of the first seed"]["frames"][0]["series"]
    assert load["y"] == bins["load_qps"]
    names = [one["name"] for one in drawn["Violations over time"]["frames"][0]["series"]]
    assert names == ["greedy", "jellyfish-plus"]


def test_points_of_the_front_are_named(tmp_path):
    chart = charts(page_of("digits-cpu", out=tmp_path / "page.html"))["Accuracy against latency"]
    front, _ = chart["frames"][0]["series"]
    assert front["named"]
    assert "svm-poly-400" in front["text"]


def test_latencies_are_drawn_at_all_sizes_that_were_measured(tmp_path):
    model = profiles.load("digits-cpu").models[4]
    chart = charts(page_of("digits-cpu", out=tmp_path / "page.html"))[
        "Latency of a batch, models on the front"]
    drawn = {one["name"]: one["x"] for one in chart["frames"][0]["series"]}
    # Its smaller batches are run as larger ones, which are faster.
    measured = [one.batch for one in model.batches]
    assert drawn[model.name] == measured
    assert measured[0] == 1


def test_an_audit_is_reported_on(tmp_path, run):
    log = tmp_path / "log.csv"
    made = run("simulate", *SERVED, "--load", "457", "--duration-s", 4, "--scheduler", "greedy",
               "--request-log", log)
    assert made.code == 0, made.err
    found = printed(tmp_path / "audit.json", "audit", log, "--profiles", "digits-cpu",
                    "--workers", 2, "--scheduler", "central-queue:max_queue=8,grid=fixed:5")
    row = json.loads(found.read_text())["rows"][0]
    text = page_of(found, out=tmp_path / "page.html")
    assert f"no scheduler with one model per request passes {row['upper_bound']:.4f}" in text
    assert "As served, and what was possible" in text


def test_the_date_is_that_of_the_build_where_one_is_set(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    placement_milp.write_placement(placement_milp.place(problem()), tmp_path / "a.json")
    assert "1970-01-02, ramsis" in page_of(tmp_path / "a.json", out=tmp_path / "page.html")
