"""Stations of a cluster: reductions to one type and one class, never worse than the best part."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.cluster import Cluster, ServiceTimes, SloClass, WorkerType
from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError, OutputError
from ramsis.policy import Level, Policy, Rates, validate_set
from ramsis.profiles import ProfileSet
from ramsis.sim import ConstantLoad, Policies, SimulationSettings, simulate
from ramsis.synthesis import SynthesisSettings, choose_loads, generate_policy, generate_set
from ramsis.synthesis.stations import ClusterProblem
from ramsis.synthesis.type_load import LikeWorkers, TypeLoads, best_division, rounded
from tests.slow import slow_after
from tests.synthesis.samples import linear_profile, tiny_profile

FLEET = SynthesisSettings(
    dispatch="central-queue", slo_ms=100.0, workers=1, max_queue=4, grid="fixed:8",
    headroom=0.0)
WORKER = SynthesisSettings(slo_ms=100.0, workers=1, max_queue=4, grid="fixed:8", headroom=0.0)
ONE = [SloClass(100.0)]
TWO = [SloClass(60.0, 0.3), SloClass(100.0, 0.7)]


@pytest.fixture(scope="module", autouse=True)
def _short_runs():
    """Replay policies and compare ways by fewer requests: a level makes dozens of policies."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ramsis.synthesis.type_load.QUERIES", 200_000)
        for name in ("QUERIES", "_OF_ONE"):
            patched.setattr(f"ramsis.synthesis.replayed.{name}", 40_000)
        patched.setattr("ramsis.synthesis.replayed._ENOUGH", 0)  # once, however wide intervals are
        yield


def fast_profile() -> ProfileSet:
    return linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0), (0.92, 12.0, 9.0))


def level(
    types: list[tuple[ProfileSet, int]], classes: list[SloClass], load_qps: float,
    chosen: SynthesisSettings = FLEET,
) -> Level[Policy]:
    named = [WorkerType("abc"[i], profile, count) for i, (profile, count) in enumerate(types)]
    return ClusterProblem(Cluster(tuple(named), tuple(classes)), chosen).level(load_qps)


def rates(found: Level[Policy], which: str = "expected") -> Rates:
    """What is promised, or what sharing or being apart gives."""
    return Rates(found.expected[f"{which}_effective_accuracy"],
                 found.expected[f"{which}_violation_rate"])


def worth(found: Level[Policy], price: float = 1.0) -> float:
    return rates(found).effective_accuracy - price * rates(found).violation_rate


@pytest.mark.parametrize("chosen", [FLEET, WORKER])
def test_equal_types_and_equal_classes_change_nothing(chosen):
    tiny, load_qps = tiny_profile(), 3500.0
    single = generate_policy(tiny, load_qps, replace(chosen, workers=8)).expectations
    found = level([(tiny, 3), (tiny, 5)], [SloClass(100.0, 0.25), SloClass(100.0, 0.75)],
                  load_qps, chosen)
    (part,) = found.stations
    assert (part.worker_types, part.workers, dict(part.share)) == (("a", "b"), 8, {100.0: 1.0})
    assert rates(found).effective_accuracy == pytest.approx(single.effective_accuracy, abs=1e-6)
    assert rates(found).violation_rate == pytest.approx(single.violation_rate, abs=1e-6)
    assert found.expected["upper_bound"] == pytest.approx(single.upper_bound, abs=1e-6)
    assert part.policy.expectations == single


@pytest.mark.parametrize("chosen", slow_after(1, [FLEET, WORKER]))
def test_a_mixed_fleet_is_never_worse_than_its_best_type(chosen):
    types, load_qps = [(tiny_profile(), 4), (fast_profile(), 3)], 1500.0
    price = chosen.violation_price
    both = level(types, ONE, load_qps, chosen)
    alone = [worth(level([one], ONE, load_qps, chosen), price) for one in types]
    assert worth(both, price) >= max(alone) - 1e-9
    assert rates(both).effective_accuracy <= both.expected["upper_bound"] + 1e-9
    assert math.fsum(part.share[100.0] for part in both.stations) == pytest.approx(1.0, abs=1e-12)
    assert math.fsum(part.policy.load_qps for part in both.stations) == pytest.approx(load_qps)


def test_the_better_of_sharing_and_being_apart_is_made():
    tiny = tiny_profile()
    found = level([(tiny, 8)], TWO, 2000.0)
    ways = rates(found, "shared"), rates(found, "apart")
    gains = [one.effective_accuracy - one.violation_rate for one in ways]
    assert worth(found) == pytest.approx(max(gains), abs=0.02)  # promised, and simulated
    assert len(found.stations) == (1 if gains[0] >= gains[1] else 2)
    assert rates(found).effective_accuracy <= found.expected["upper_bound"] + 1e-9


def test_the_division_of_workers_is_the_best_of_all():
    tiny = tiny_profile()
    workers = LikeWorkers(("a",), tiny, ServiceTimes.of(tiny, "p95", FLEET.max_queue), 5)
    apart = TypeLoads([workers], TWO, FLEET, 1500.0).ways(0, (0.3, 0.7)).apart
    assert apart is not None
    gains = []
    for first in range(1, 5):
        one = generate_policy(tiny, 450.0, replace(FLEET, slo_ms=60.0, workers=first))
        other = generate_policy(tiny, 1050.0, replace(FLEET, workers=5 - first))
        gains.append(0.3 * one.certificate.gain + 0.7 * other.certificate.gain)
    best = sum(share * part.policy.certificate.gain
               for share, part in zip((0.3, 0.7), apart, strict=True))
    assert best == pytest.approx(max(gains), abs=1e-6)


def test_worker_policies_keep_classes_apart():
    found = level([(tiny_profile(), 5)], TWO, 400.0, WORKER)
    assert found.expected["shared_effective_accuracy"] is None
    assert sorted(part.policy.slo_ms for part in found.stations) == [60.0, 100.0]
    with pytest.raises(InfeasibleError, match=r"^workers: fewer workers of a type than SLO"):
        level([(tiny_profile(), 1)], TWO, 400.0, WORKER)
    alone = level([(tiny_profile(), 1)], TWO, 40.0)
    assert alone.expected["apart_effective_accuracy"] is None


@pytest.mark.slow
def test_a_type_too_slow_for_a_class_does_not_get_it():
    slow = linear_profile((0.95, 70.0, 20.0))
    found = level([(slow, 4), (fast_profile(), 2)], TWO, 200.0)
    assert all(60.0 not in part.share for part in found.stations if part.worker_types == ("a",))
    assert sum(part.share.get(60.0, 0.0) for part in found.stations) == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(weights=st.lists(st.floats(0.0, 10.0), min_size=2, max_size=4),
       whole=st.integers(4, 40), least=st.integers(0, 1))
def test_rounding_keeps_the_whole(weights, whole, least):
    found = rounded(weights, whole, least)
    assert sum(found) == whole
    assert min(found) >= least


@settings(max_examples=40, deadline=None)
@given(rates=st.lists(st.floats(0.1, 5.0), min_size=2, max_size=3), whole=st.integers(4, 20))
def test_exchanges_find_the_best_division_of_concave_parts(rates, whole):
    def value(division: tuple[tuple[int, ...], ...]) -> float:
        return sum(rate * math.sqrt(units) for rate, units in zip(rates, division[0], strict=True))

    def all_of(parts: int, units: int) -> list[tuple[int, ...]]:
        if parts == 1:
            return [(units,)]
        return [(first, *rest) for first in range(units + 1)
                for rest in all_of(parts - 1, units - first)]

    start = (rounded([1.0] * len(rates), whole),)
    found = best_division(value, value, [start], (4, 2, 1))
    assert value(found) == pytest.approx(
        max(value((one,)) for one in all_of(len(rates), whole)), abs=1e-6)


PAIR = Cluster(
    (WorkerType("a", tiny_profile(), 3), WorkerType("b", fast_profile(), 2)), tuple(ONE))
APART = Cluster((WorkerType("a", tiny_profile(), 2),), tuple(TWO))
"""A worker for each class."""
COARSE = replace(WORKER, grid="fixed:4", max_queue=2)
TYPES = (WorkerType("a", tiny_profile(), 5), WorkerType("b", fast_profile(), 5))
LOADS = (400.0, 1900.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "mix"
    generate_set(Cluster(TYPES, tuple(TWO)), LOADS, FLEET, folder)
    return folder


@pytest.mark.slow
def test_a_written_mix_does_what_it_promises(made):
    mix = validate_set(made)
    assert [one.load_qps for one in mix.levels] == list(LOADS)
    cluster = Cluster(TYPES, tuple(TWO))
    for one in mix.levels:
        result = simulate(cluster, Policies(mix), ConstantLoad(one.load_qps, 4e7 / one.load_qps),
                          SimulationSettings(seeds=range(3)))
        effective = result.estimate("effective_accuracy")
        assert effective.half_width is not None
        assert abs(effective.mean - one.expected["expected_effective_accuracy"]) \
            < 0.02 + effective.half_width
        assert effective.mean <= one.expected["upper_bound"] + 2 * effective.half_width + 1e-9
    with pytest.raises(InputFileError, match="made for other worker types"):
        simulate(Cluster(TYPES[:1], tuple(TWO)), Policies(mix), ConstantLoad(300.0, 1.0))
    other = replace(FLEET, violation_price=0.5)
    with pytest.raises(OutputError, match="made from another profile or other settings"):
        generate_set(Cluster(TYPES, tuple(TWO)), (300.0,), other, made)


def test_overwriting_leaves_nothing_of_the_old_mix(tmp_path):
    folder = tmp_path / "mix"
    one = (WorkerType("a", tiny_profile(), 20),)
    generate_set(Cluster(one, tuple(ONE)), (1000.0,), FLEET, folder)
    generate_set(Cluster(one, (SloClass(60.0),)), (2000.0,), FLEET, folder, overwrite=True)
    assert sorted(path.name for path in folder.rglob("*.json")) == [
        "central-queue-02000qps.json", "manifest.json"]
    (level,) = validate_set(folder).levels
    assert [station.name for station in level.stations] == ["a-20w-60ms"]
    assert not any(path.is_dir() for path in folder.iterdir())


def test_a_mix_that_contradicts_itself_is_refused(made, tmp_path):
    folder = tmp_path / "mix"
    shutil.copytree(made, folder)
    document = json.loads((folder / "manifest.json").read_text())

    def refused(match: str) -> None:
        (folder / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(InputFileError, match=match):
            validate_set(folder)

    part = document["levels"][0]["stations"][0]
    part["worker_types"] = ["tpu"]
    refused(r"levels\[0\].stations\[0\].worker_types\[0\]: unknown worker type: got 'tpu'; "
            "allowed: a, b")
    part["worker_types"] = ["a"] if "a-" in part["file"] else ["b"]
    share = part["share"][0]
    share["share"] /= 2
    refused(r"levels\[0\].stations: shares of the class of \d+ ms do not sum to 1")
    share["share"] *= 2
    document["levels"][1]["expected_effective_accuracy"] -= 0.01
    several = len(document["levels"][1]["stations"]) > 1
    refused("not the sum of the stations' promises" if several else "says otherwise")
    document["levels"][1]["expected_effective_accuracy"] += 0.01
    document["slo_classes"][0]["share"] = 0.5
    refused("shares do not sum to 1")
    document["slo_classes"][0]["share"] = 0.3
    with (folder / part["file"]).open("a") as stream:
        stream.write(" ")
    refused("changed since the manifest")
    (folder / part["file"]).unlink()
    refused(r"levels\[0\].stations\[0\].file: file is missing")


def test_nothing_is_written_for_a_class_in_too_much_of_a_hurry(tmp_path):
    with pytest.raises(InfeasibleError, match=r"got 1.0; allowed: at least 4 ms"):
        generate_set(Cluster((WorkerType("a", tiny_profile(), 4),), (SloClass(1.0, 0.5),
                     SloClass(100.0, 0.5))), (300.0,), FLEET, tmp_path / "mix")
    assert not (tmp_path / "mix").exists()


def test_a_type_without_workers_is_named():
    with pytest.raises(InvalidValueError, match=r"^workers: a: not a number of workers"):
        Cluster((WorkerType("a", tiny_profile(), 0),), tuple(ONE))


def test_queries_go_to_the_parts_by_their_shares(made):
    mix = validate_set(made)
    found = mix.at(350.0).level
    assert found.load_qps == LOADS[0]
    assert mix.at(9999.0).level_qps == LOADS[1]
    for slo_ms in (60.0, 100.0):
        draws = 2000
        counts: dict[str, int] = {}
        for k in range(draws):
            part = found.route(slo_ms, (k + 0.5) / draws)
            counts[part.name] = counts.get(part.name, 0) + 1
        for part in found.stations:
            share = part.share.get(slo_ms, 0.0)
            assert counts.get(part.name, 0) / draws == pytest.approx(share, abs=2 / draws)
    with pytest.raises(InvalidValueError, match=r"no class .* got 70\.0; allowed: 60, 100"):
        found.route(70.0, 0.5)
    with pytest.raises(InvalidValueError, match="not a load"):
        mix.at(-1.0)


def test_a_set_of_several_stations_is_extended(tmp_path):
    generate_set(APART, (60.0, 100.0), COARSE, tmp_path / "one")
    generate_set(APART, (100.0,), COARSE, tmp_path / "two")
    generate_set(APART, (60.0,), COARSE, tmp_path / "two")
    levels = validate_set(tmp_path / "two").levels
    assert [(level.load_qps, len(level.stations)) for level in levels] == [(60.0, 2), (100.0, 2)]
    one, two = ({str(path.relative_to(tmp_path / name)): path.read_bytes()
                 for path in (tmp_path / name).rglob("*.json")} for name in ("one", "two"))
    assert one == two
    fewer = Cluster(APART.worker_types, tuple(ONE))
    with pytest.raises(OutputError, match="made from another profile or other settings"):
        generate_set(fewer, (60.0,), COARSE, tmp_path / "two")


@pytest.mark.parametrize("arrivals", [
    "negative-binomial:3", "mmpp:ratio=3,burst-ms=200,share=0.2"])
def test_what_comes_to_a_station_is_what_is_left_of_the_process(tmp_path, arrivals):
    (made,) = generate_set(APART, (100.0,), replace(COARSE, arrivals=arrivals), tmp_path).levels
    assert len(made.stations) == 2
    (found,) = validate_set(tmp_path).levels
    assert found.arrivals == made.arrivals
    for station in found.stations:
        known = station.policy.arrivals
        if known["process"] == "negative-binomial":
            assert known["dispersion"] == pytest.approx(1.0 + 2.0 * station.load_qps / 100.0)
        else:
            assert (known["ratio"], known["burst_ms"], known["share"]) == (3.0, 200.0, 0.2)


def test_a_process_of_ones_own_is_not_split():
    own = replace(WORKER, arrivals="tests.arrivals.processes:Pairs")
    with pytest.raises(InvalidValueError, match="arrivals"):
        ClusterProblem(PAIR, own)


def test_levels_by_the_accuracy_of_the_set(monkeypatch):
    steps, level_of = [], ClusterProblem.level

    def noted(problem: ClusterProblem, load_qps: float) -> Level[Policy]:
        found = level_of(problem, load_qps)
        steps.append(found.expected["expected_accuracy"])
        return found

    monkeypatch.setattr(ClusterProblem, "level", noted)
    assert choose_loads(APART, 100.0, 101.0, COARSE, 0.2) == (100.0, 101.0)
    assert abs(steps[0] - steps[1]) <= 0.2
