"""The service times that are taken where none are named: the same everywhere."""

from typing import Any

import pytest

from ramsis.bounds import Targets
from ramsis.cluster import Cluster, SloClass, WorkerType, default_service
from ramsis.policy import read_set
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, save
from ramsis.sim import ConstantLoad, Fleet, Fleets, Greedy
from ramsis.sweep import SweepSpec, run_sweep
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.synthesis.capacity import fewest_workers
from ramsis.synthesis.capacity.cheapest import fluid_mixes
from ramsis.synthesis.capacity.trials import try_workers
from tests.runs import simulate_profile
from tests.synthesis.samples import tiny_profile, varying_profile

PROFILES = pytest.mark.parametrize(("profile", "expected"), [
    (varying_profile(), "distribution"), (tiny_profile(), "p95")], ids=["drawn", "fixed"])
LOAD = ConstantLoad(300.0, 500.0)


@pytest.fixture
def file(profile, tmp_path):
    path = tmp_path / "profile.json"
    save(profile, path)
    return path


@PROFILES
def test_functions_take_the_same(profile, expected):
    cluster = Cluster.of(profile, workers=2, slo_ms=100.0)
    targets = Targets(0.01)
    assert default_service(profile) == cluster.default_service == expected
    assert SynthesisSettings(slo_ms=100.0, workers=2).chosen_service(profile) == expected
    assert Fleet.of(profile, workers=2, slo_ms=100.0).service_times.service == expected
    assert Fleets.of(cluster).fleets[0].service_times.service == expected
    played = simulate_profile(profile, Greedy(), LOAD, workers=2, slo_ms=100.0)
    assert played.service == expected
    trial = try_workers(cluster, LOAD, targets, scheduler="greedy", seeds=(0,))
    named = try_workers(cluster, LOAD, targets, scheduler="greedy", service=expected, seeds=(0,))
    assert trial.rates == named.rates is not None
    found = fewest_workers(profile, LOAD, targets, slo_ms=100.0, scheduler="greedy", seeds=(0,))
    assert found.service == expected
    mixes = [fluid_mixes([WorkerType("a", profile, 9)], 300.0, targets, slo_ms=100.0, **named)
             for named in ({}, {"service": expected})]
    assert mixes[0].cheapest() == mixes[1].cheapest()


@PROFILES
def test_commands_take_the_same(run, profile, expected, file, tmp_path):
    base = ["--profiles", file, "--slo-ms", 100]
    at = [*base, "--workers", 2, "--load", 300]
    short = ["--duration-s", 0.5, "--json"]

    def rows(*command: Any) -> list[dict[str, Any]]:
        ran = run(*command)
        found: list[dict[str, Any]] = ran.rows
        return found

    played = rows("simulate", *at, "--scheduler", "greedy", *short)
    enough = rows("capacity", *base, "--load", 300, "--scheduler", "greedy", *short)
    bound = rows("bound", *at, "--json")
    assert {row["service"] for row in (*played, *enough, *bound)} == {expected}
    (made,) = rows("generate", *at, "--grid", "fixed:10", "--out", tmp_path / "out", "--json")
    (level,) = read_set(tmp_path / "out").levels
    assert level.stations[0].policy.service == expected
    assert bound[0]["upper_bound"] == pytest.approx(made["upper_bound"], abs=1e-6)
    swept = run_sweep(SweepSpec.of({
        "profiles": str(file), "slo_ms": 100, "workers": 2, "load_qps": 300,
        "scheduler": "greedy", "duration_s": 0.5}), tmp_path / "sweep")
    assert swept.rows[0]["service"] == expected


def test_times_are_fixed_for_all_workers_where_some_profile_has_no_quantiles(tmp_path):
    types = (WorkerType("drawn", varying_profile(), 2), WorkerType("fixed", tiny_profile(), 2))
    cluster = Cluster(types, (SloClass(100.0),))
    assert cluster.default_service == "p95"
    made = generate_set(cluster, (900.0,), SynthesisSettings(
        slo_ms=100.0, workers=4, grid="fixed:10", max_queue=6), tmp_path)
    assert {one.policy.service for one in made.levels[0].stations} == {"p95"}


@pytest.mark.parametrize(("names", "expected"), [
    (("mean_ms",), "mean"), (("p50_ms",), "p50"), (("p99_ms",), "p99"),
    (("mean_ms", "p50_ms"), "p95"), (("mean_ms", "p95_ms"), "p95")])
def test_the_only_statistic_is_taken(names, expected):
    assert default_service(of_statistics(*names)) == expected


def of_statistics(*names: str) -> ProfileSet:
    """Return two models whose batches have these statistics only, all equal."""
    def profiled(name: str, accuracy: float, latency_ms: float) -> ModelProfile:
        return ModelProfile(name, accuracy, tuple(
            BatchProfile(size, **dict.fromkeys(names, latency_ms * (1 + size)))
            for size in (1, 2, 4)))

    return ProfileSet("columns", (profiled("tiny", 0.7, 1.5), profiled("big", 0.8, 6.0)))


@pytest.mark.parametrize("name", ["mean", "p50"])
def test_commands_say_that_they_take_the_only_statistic(run, name, tmp_path):
    file = tmp_path / "profile.json"
    save(of_statistics(f"{name}_ms"), file)
    asked = ("generate", "--profiles", file, "--slo-ms", 100, "--workers", 2, "--load", 50,
             "--out")
    made = run(*asked, tmp_path / "policies")
    assert made.code == 0, made.err
    assert made.err.startswith("note: service times are " + {"mean": "means", "p50": "medians"}[
        name])
    (level,) = read_set(tmp_path / "policies").levels
    assert level.policy.service == name
    assert "note:" not in run(*asked, tmp_path / "named", "--service", name).err
    planned = run("plan", "--profiles", file, "--slo-ms", 100, "--load", 50, "--out",
                  tmp_path / "plan", "--dry-run")
    assert planned.code == 0, planned.err
    assert planned.err.startswith("note: service times are ")
    assert f"--service {name}" in planned.out
