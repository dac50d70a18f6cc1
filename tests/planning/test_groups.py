"""Figures of groups agree with what happened, counted request by request from the events."""

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.planning import compare, scheduler_named
from ramsis.planning.comparison import GROUPINGS, grouping_named, stage_means
from ramsis.scenario import Scenario, scenario_from_document
from ramsis.sim import Engine, measure
from ramsis.sim import Run as SimulatedRun
from ramsis.sim.metrics import jain_index
from tests.cli.command import refused
from tests.scenario.samples import document, model, stream
from tests.sim.cluster.random_scenarios import Chance, random_scenario
from tests.slow import slow_after

STAGES = ("waiting", "loading", "service", "machine")


def group_of(scenario: Scenario, by: str, stream_at: int, model_at: int) -> str:
    """The name of a request's group, from the records of the file."""
    if by in ("stream", "tenant"):
        one = scenario.streams[stream_at]
        return one.name if by == "stream" else one.tenant or "(none)"
    entries = [(kind, name) for kind in scenario.models for name in kind.instance_names()]
    kind, name = entries[model_at]
    return {"copy": name, "model": kind.name, "family": kind.family or kind.name}[by]


def counted(run: SimulatedRun, scenario: Scenario, by: str) -> dict[str, dict[str, Any]]:
    """Counts and summed stages by group, one request and one load at a time."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(float))
    dropped = set(run.drop_request.tolist())
    for i in range(run.requests):
        group = found[group_of(scenario, by, int(run.stream[i]), int(run.asked[i]))]
        group["requests"] += 1
        came, batch = float(run.arrival_ms[i]), int(run.batch_of[i])
        answer = np.inf if batch < 0 else float(run.finish_ms[batch])
        if batch >= 0 and len(run.processed_ms) and not np.isnan(run.processed_ms[i]):
            answer = float(run.processed_ms[i])
        if not np.isfinite(answer):
            group["dropped" if i in dropped else "never_answered"] += 1
            continue
        in_time = run.earliest_ms[i] - 2e-6 <= answer <= came + run.slo_ms[i] + 2e-6
        group["in_time" if in_time else "late"] += 1
        start = float(run.start_ms[batch])
        loading = sum(
            max(0.0, min(start, end) - max(came, begin)) for begin, end, worker, loaded in zip(
                run.load_start_ms, run.load_end_ms, run.load_worker, run.load_model, strict=True)
            if worker == run.worker[batch] and loaded == run.model[batch])
        group["loading"] += loading
        group["waiting"] += start - came - loading
        group["service"] += float(run.finish_ms[batch]) - start
        group["machine"] += answer - float(run.finish_ms[batch])
    return found


def agree(run: SimulatedRun, scenario: Scenario, by: str) -> dict[str, Any]:
    """The row of a grouping, held to the count and to the figures of the whole run."""
    grouping = grouping_named(by, scenario)
    figures = grouping.figures(run)
    row, found, total = grouping.row([figures]), counted(run, scenario, by), measure(run)
    for group in row["groups"]:
        mine = found.get(group["name"], defaultdict(float))
        for key in ("requests", "late", "dropped", "never_answered"):
            assert group[key] == mine[key]
        answered = mine["in_time"] + mine["late"]
        if mine["requests"]:
            assert group["in_time"] == pytest.approx(mine["in_time"] / mine["requests"])
        else:
            assert group["in_time"] is None
        for stage in STAGES:
            mean = group[f"{stage}_mean_ms"]
            if answered:
                assert mean == pytest.approx(mine[stage] / answered, abs=1e-6)
            else:
                assert mean is None
    assert set(found) <= {one["name"] for one in row["groups"]}
    for key, whole in (("requests", total.queries), ("late", total.late),
                       ("dropped", total.dropped), ("never_answered", total.never_answered)):
        assert sum(one[key] for one in row["groups"]) == whole
    assert int(figures.in_time.sum()) == total.in_time
    means = stage_means([figures])
    if total.response_mean_ms is not None:
        assert means["response_mean_ms"] == pytest.approx(total.response_mean_ms)
        parts = [means[f"{stage}_mean_ms"] or 0.0 for stage in STAGES]
        assert sum(parts) == pytest.approx(total.response_mean_ms)
    shares = [one["in_time"] for one in row["groups"] if one["requests"]]
    if shares:
        assert row["worst_in_time"] == min(shares)
        assert 1.0 / len(shares) - 1e-12 <= row["fairness"] <= 1.0 + 1e-12
    return row


@pytest.mark.parametrize("seed", slow_after(10, range(40)))
def test_groups_agree_with_events_of_random_runs(seed):
    made = random_scenario(np.random.default_rng([17, seed]))
    run = Engine.of_scenario(made, seed).serve(Chance)
    for by in GROUPINGS:
        agree(run, made, by)


def shared() -> Scenario:
    """Six models of two families on two small workers, of two tenants."""
    return scenario_from_document(document(
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 250}], start=[],
        models=[model("a", 4.7, copies=3, load_ms=31.3, family="f"),
                model("b", 9.1, load_ms=47.1, family="f"), model("c", 13.3, load_ms=23.7),
                model("d", 3.1, load_ms=17.9)],
        streams=[stream("s", "a", slo_ms=83.0, tenant="x", workload={"load_qps": 61.3}),
                 stream("t", "b", slo_ms=171.0, tenant="y", workload={"load_qps": 17.7}),
                 stream("u", "c", slo_ms=91.0, tenant="x", workload={"load_qps": 23.9}),
                 stream("v", "d", slo_ms=91.0, workload={"times_ms": [9000.0]})], duration_s=7))


@pytest.mark.parametrize("scheduler", ["clockwork", "planned", "lru", "round-robin"])
def test_groups_agree_with_events_of_schedulers(scheduler):
    made = shared()
    run = scheduler_named(scheduler).serve(Engine.of_scenario(made, 3))
    rows = {by: agree(run, made, by) for by in GROUPINGS}
    assert sum(one["loading_mean_ms"] or 0.0 for one in rows["model"]["groups"]) > 1.0
    assert [one["name"] for one in rows["tenant"]["groups"]] == ["x", "y", "(none)"]
    assert [one["name"] for one in rows["family"]["groups"]] == ["f", "c", "d"]
    assert rows["stream"]["groups"][3] == {
        "name": "v", "requests": 0, "late": 0, "dropped": 0, "never_answered": 0, "in_time": None,
        "response_mean_ms": None, **{f"{stage}_mean_ms": None for stage in STAGES},
        "response_p50_ms": None, "response_p99_ms": None}


def test_seeds_are_added_up_and_quantiles_averaged():
    made, spec = shared(), [scheduler_named("clockwork")]
    both, = compare(made, spec, (0, 1), by=("stream", "stream"))
    apart = [compare(made, spec, (seed,), by=("stream",))[0].row()["by"]["stream"]["groups"][0]
             for seed in (0, 1)]
    row = both.row()
    found = row["by"]["stream"]["groups"][0]
    for key in ("requests", "late", "dropped"):
        assert found[key] == sum(one[key] for one in apart)
    weights = [one["requests"] for one in apart]
    assert found["in_time"] == pytest.approx(np.average([one["in_time"] for one in apart],
                                                        weights=weights))
    assert found["response_p99_ms"] == pytest.approx(
        sum(one["response_p99_ms"] for one in apart) / 2)
    assert sum(one["requests"] for one in row["by"]["stream"]["groups"]) == row["requests"]
    assert "by" not in compare(made, spec, (0,))[0].row()


def test_fairness_is_jains_index():
    assert jain_index([0.3, 0.3, 0.3]) == pytest.approx(1.0)
    assert jain_index([0.7, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([1.0, 0.5]) == pytest.approx(1.5 ** 2 / (2 * 1.25))
    assert jain_index([0.0, 0.0]) == 1.0


def test_the_command_prints_groups_and_refuses_what_is_none(run, tmp_path):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(shared().to_document()))
    words = ("--scheduler", "clockwork", "--scheduler", "lru", "--by", "stream", "--by", "tenant")
    code, out, _ = run("simulate", path, *words)
    assert code == 0
    assert "worst stream" in out
    assert "lru: fairness" in out
    assert max(map(len, out.splitlines())) <= 100
    rows = run("simulate", path, *words, "--json").rows
    for row in rows:
        assert list(row["by"]) == ["stream", "tenant"]
        for grouping in row["by"].values():
            assert sum(one["requests"] for one in grouping["groups"]) == row["requests"]
    run("simulate", path, *words, "--csv", tmp_path / "rows.csv")
    assert "{" not in (tmp_path / "rows.csv").read_text()
    refused(run("simulate", path, "--by", "worker"), 2, "--by", "worker")
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", "25", "--workers", "2",
                "--load", "30", "--scheduler", "greedy", "--by", "stream"), 2, "--by")
    with pytest.raises(InvalidValueError, match="by: not what requests are grouped by"):
        grouping_named("worker", shared())
