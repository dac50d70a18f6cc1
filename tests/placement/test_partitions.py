"""GPUs that are cut into instances: layouts, the program, positions, and what is refused."""

import itertools
import json
import random
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from placement_milp import (
    Limits,
    Placement,
    Problem,
    check_placement,
    place,
    problem_from_document,
)
from placement_milp.partitions import layouts, multisets, shipped_partitions
from ramsis.errors import InfeasibleError, InputFileError, VerificationError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, save
from ramsis.profiles.importers.rows import read_rows
from tests.reference.partitions import fits, legal, outcomes
from tests.slow import slow_after

FIVE = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
TINY = {"name": "tiny", "compute_slices": 3, "memory_slices": 4, "instances": [
    {"name": "1g", "compute_slices": 1, "memory_slices": 1, "memory_mb": 10, "starts": [0, 1, 2]},
    {"name": "2g", "compute_slices": 2, "memory_slices": 2, "memory_mb": 20, "starts": [0, 2]},
    {"name": "3g", "compute_slices": 3, "memory_slices": 4, "memory_mb": 40, "starts": [0]}]}


def document(
    rng: random.Random, table: Any, kinds: tuple[str, ...], **sizes: int
) -> dict[str, Any]:
    """A random problem on GPUs that are cut."""
    families = [{"name": f"f{i}", "demand_qps": rng.randint(20, 300),
                 "slo_ms": rng.choice([40, 100, 200])} for i in range(sizes["families"])]
    variants = []
    for i, j in itertools.product(range(sizes["families"]), range(sizes["variants"])):
        entries = []
        for size, kind in enumerate(kinds, 1):
            for batch, processes in itertools.product((1, 4), (1, 2)):
                if rng.random() < 0.8:
                    ms = round(rng.uniform(3, 40) * (1 + j) * batch**0.7 * processes**0.5
                               / size**0.8, 3)
                    entries.append({"worker_type": f"gpu/{kind}", "batch": batch,
                                    "processes": processes, "latency_ms": ms,
                                    "memory_mb": rng.choice([5, 15, 30])})
        variants.append({"name": f"f{i}v{j}", "family": f"f{i}", "accuracy": 0.6 + 0.2 * j,
                         "memory_mb": 5, "load_ms": rng.choice([500, 2000]),
                         "latency": entries})
    return {"format": "ramsis.placement-problem/1", "name": "cut",
            "objective": {"kind": "fewest-workers"}, "families": families,
            "worker_types": [{"name": "gpu", "count": sizes["gpus"], "cost_per_hour": 3,
                              "partitions": table, "instance_ms": 1000}],
            "variants": variants}


def current(rng: random.Random, problem: dict[str, Any]) -> list[dict[str, Any]]:
    """Random layouts and what they hold."""
    asked = problem_from_document(problem)
    (gpu,) = asked.worker_types
    assert gpu.partitions is not None
    names = [v["name"] for v in problem["variants"]]
    return [{"worker": f"{name}/{kind}@{start}",
             "variants": rng.sample(names, rng.randint(0, 1))}
            for name in gpu.worker_names()
            for kind, start in rng.choice(legal(gpu.partitions))]


def only_positions(placement: Placement) -> None:
    """Each GPU has instances that its table of positions allows, and those that are in use."""
    tables = {t.name: t.partitions for t in placement.problem.worker_types}
    there = set()
    for gpu in placement.gpus:
        table = tables[gpu.worker_type]
        assert table is not None
        places = tuple((name, int(start)) for name, _, start in (
            instance.rpartition("@") for instance in gpu.instances))
        assert fits(table, places)
        there |= {f"{gpu.gpu}/{instance}" for instance in gpu.instances}
    used = [worker for group in placement.groups for worker in group.workers if "@" in worker]
    assert len(used) == len(set(used))
    assert set(used) <= there


def test_the_layouts_of_an_a100_are_the_twelve():
    table = shipped_partitions()["A100-80GB"]
    found = multisets(layouts(table, frozenset(FIVE)), FIVE)
    sizes = sorted("".join(sorted(name[0] for name, _ in layout)) for layout in found)
    assert sizes == sorted(["7", "34", "124", "1114", "33", "223", "1123", "11113", "1222",
                            "11122", "111112", "1111111"])


@pytest.mark.parametrize("name", shipped_partitions())
def test_layouts_are_all_sets_that_fit_and_that_nothing_can_be_added_to(name):
    table = shipped_partitions()[name]
    fitting = {frozenset(places) for places in legal(table)} if len(table.instances) < 5 else None
    found = layouts(table, frozenset(kind.name for kind in table.instances))
    places = [(kind.name, start) for kind in table.instances for start in kind.starts]
    for layout in found:
        assert fits(table, layout)
        assert not any(fits(table, (*layout, place)) for place in places)
    assert len(set(map(frozenset, found))) == len(found)
    if fitting is not None:
        assert set(map(frozenset, found)) == {
            one for one in fitting if not any(one < other for other in fitting)}


OBJECTIVES: dict[str, tuple[dict[str, Any], Any]] = {
    "fewest": ({"kind": "fewest-workers"}, lambda o: o.gpus),
    "cheapest": ({"kind": "cheapest"}, lambda o: o.cost),
    "effective accuracy": ({"kind": "effective-accuracy"}, lambda o: -o.effective),
    "worst family": ({"kind": "max-min"}, lambda o: -o.worst),
    "fewest, then moves": ({"kind": "lexicographic", "order": ["workers", "moving"]},
                           lambda o: (o.gpus, o.moving)),
    "accuracy less moves": ({"kind": "effective-accuracy", "moving_price": 0.02},
                            lambda o: -o.effective + 0.02 * o.moving),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("seed", slow_after(3, range(10)))
def test_it_finds_what_trying_everything_finds(name, seed):
    rng = random.Random(f"{name} {seed}")
    objective, worth = OBJECTIVES[name]
    asked = document(rng, TINY, ("1g", "2g", "3g"), families=2, variants=1 + seed % 2, gpus=2)
    if "moves" in name:
        asked["current"] = current(rng, asked)
        if "order" in objective:
            asked["families"] = [{**f, "min_served": 1} for f in asked["families"]]
    problem = problem_from_document({**asked, "objective": objective})
    everything = list(outcomes(problem))
    try:
        placement = place(problem)
    except InfeasibleError:
        assert not everything or any(
            not any(e.latency_ms <= 0.5 * f.slo_ms for v in problem.variants
                    if v.family == f.name for e in v.latency) for f in problem.families)
        return
    only_positions(placement)
    best = min(worth(outcome) for outcome in everything)
    first = placement.objective
    reached = [stage.objective for stage in placement.stages]
    if isinstance(best, tuple):
        assert reached == pytest.approx(list(best), abs=1e-5)
    else:
        assert first == pytest.approx(abs(best) if name != "accuracy less moves" else -best,
                                      abs=2e-6)


def test_the_brute_force_tells_problems_apart():
    """Most of the random problems above have a solution, and not all need the same."""
    found = []
    for seed in range(10):
        asked = document(random.Random(f"fewest {seed}"), TINY, ("1g", "2g", "3g"), families=2,
                         variants=1 + seed % 2, gpus=2)
        found.append(min((o.gpus for o in outcomes(problem_from_document(asked))), default=None))
    assert {1, 2} <= set(found)


@pytest.mark.slow
def test_a_thousand_plans_are_legal():
    solved = 0
    for seed in range(1000):
        rng = random.Random(seed)
        name = rng.choice(list(shipped_partitions()))
        table = shipped_partitions()[name]
        kinds = tuple(kind.name for kind in table.instances)
        asked = document(rng, name, kinds, families=rng.randint(1, 5),
                         variants=rng.randint(1, 3), gpus=rng.randint(1, 12))
        for family in asked["families"]:
            family["demand_qps"] *= rng.randint(1, 10)
        asked["objective"] = rng.choice([
            {"kind": "fewest-workers"}, {"kind": "effective-accuracy", "cost_price": 0.001},
            {"kind": "effective-accuracy", "moving_price": 0.001}, {"kind": "cheapest"}])
        problem = problem_from_document(asked)
        assert problem.worker_types[0].partitions is not None
        if len(table.instances) < 5 and rng.random() < 0.5:
            asked["current"] = current(rng, asked)
        try:
            placement = place(problem_from_document(asked), Limits(gap=1e-3))
        except InfeasibleError:
            continue
        only_positions(placement)
        solved += 1
    assert solved > 500


def test_a_plan_with_instances_that_overlap_is_refused():
    rng = random.Random(1)
    asked = document(rng, TINY, ("1g", "2g", "3g"), families=2, variants=1, gpus=2)
    problem = problem_from_document({**asked, "objective": {"kind": "effective-accuracy"}})
    placement = place(problem)
    check_placement(problem, placement)
    gpu = placement.gpus[0]
    for places, says in ((("1g@0", "2g@0"), "overlap"), (("2g@1",), "at this position"),
                         (("5g@0",), "at this position"), ((), "lacks instances"),
                         (("1g@0", "1g@1", "2g@2"), "too many compute slices")):
        wrong = replace(placement, gpus=(replace(gpu, instances=places, made=places),
                                         *placement.gpus[1:]))
        with pytest.raises(VerificationError, match=says):
            check_placement(problem, wrong)
    with pytest.raises(VerificationError, match="not listed"):
        check_placement(problem, replace(placement, gpus=placement.gpus[1:]))


@pytest.mark.parametrize(("changes", "says"), [
    ({"starts": [3]}, "ends beyond the GPU"),
    ({"starts": [0, 0]}, "not a new memory slice"),
    ({"compute_slices": 4}, "more than the GPU has"),
    ({"name": "1g"}, "not a new name"),
])
def test_tables_that_no_gpu_has_are_refused(changes, says):
    asked = document(random.Random(0), TINY, ("1g",), families=1, variants=1, gpus=1)
    instances = [TINY["instances"][0], {**TINY["instances"][1], **changes}]  # type: ignore[index]
    asked["worker_types"][0]["partitions"] = {**TINY, "instances": instances}
    with pytest.raises(InputFileError, match=says):
        problem_from_document(asked)


def test_instances_that_the_gpu_does_not_have_are_refused():
    asked = document(random.Random(0), "A30-24GB", ("3g.20gb",), families=1, variants=1, gpus=1)
    with pytest.raises(InputFileError, match=r"unknown worker type.*gpu/1g\.6gb"):
        problem_from_document(asked)
    asked["worker_types"][0]["partitions"] = "A31"
    with pytest.raises(InputFileError, match="A30-24GB"):
        problem_from_document(asked)
    asked = document(random.Random(0), TINY, ("1g",), families=1, variants=1, gpus=1)
    asked["current"] = [{"worker": "gpu-1/2g@0", "variants": []},
                        {"worker": "gpu-1/1g@1", "variants": []}]
    with pytest.raises(InputFileError, match="instances of gpu-1 overlap"):
        problem_from_document(asked)


@pytest.mark.parametrize("name", [
    "H100-80GB", "H100-NVL-94GB", "H200-141GB", "B200-180GB"])
def test_gpus_of_seven_slices_are_cut_alike(name):
    """Names and memory differ; NVIDIA's guide has the same fractions and numbers for all."""
    table, first = shipped_partitions()[name], shipped_partitions()["A100-80GB"]
    assert [(kind.name[:2], kind.compute_slices, kind.memory_slices, kind.starts)
            for kind in table.instances] == [
        (kind.name[:2], kind.compute_slices, kind.memory_slices, kind.starts)
        for kind in first.instances]
    for kind in table.instances:
        gib = int(kind.name.partition(".")[2].removesuffix("gb"))
        assert 0.8 * gib * 1e9 <= kind.memory_mb * 2**20 <= 1.08 * gib * 1e9
        assert len(kind.starts) == {(1, 1): 7, (1, 2): 4, (2, 2): 3, (3, 4): 2}.get(
            (kind.compute_slices, kind.memory_slices), 1)


def test_the_name_of_a_gpu_does_what_its_table_does():
    names = [kind.name for kind in shipped_partitions()["H100-NVL-94GB"].instances]
    asked = document(random.Random(5), "H100-NVL-94GB", tuple(names), families=2, variants=1,
                     gpus=3)
    placement = place(problem_from_document(asked))
    tables = resources.files("placement_milp").joinpath("gpu-partitions.json").read_text("utf-8")
    asked["worker_types"][0]["partitions"] = next(
        table for table in json.loads(tables) if table["name"] == "H100-NVL-94GB")
    assert place(problem_from_document(asked)).groups == placement.groups


def test_a_profile_that_was_measured_on_an_instance_is_read(tmp_path):
    batches = tuple(BatchProfile(b, p95_ms=4.0 + b) for b in (1, 2, 4))
    save(ProfileSet("on mig", (ModelProfile("m", 0.7, batches, memory_mb=900.0),)),
         tmp_path / "measured.json")
    (tmp_path / "rows.csv").write_text(
        "model,instance,batch,processes,latency_ms,throughput_rps\nm,4g.24gb,4,2,5,1600\n")
    asked = {"format": "ramsis.placement-problem/1", "name": "measured",
             "objective": {"kind": "fewest-workers"},
             "families": [{"name": "m", "demand_qps": 1999, "slo_ms": 16}],
             "worker_types": [{"name": "gpu", "count": 3, "partitions": "A30-24GB"}],
             "profiles": [{"worker_type": "gpu/1g.6gb", "file": "measured.json"},
                          {"worker_type": "gpu", "file": "rows.csv"}]}
    placement = place(problem_from_document(asked, "p.json", tmp_path))
    # Four small instances take 4 x 500, as 4 of 8 ms are a batch of 4.
    assert [(g.worker_type, len(g.workers)) for g in placement.groups] == [("gpu/1g.6gb", 4)]
    assert placement.groups[0].memory_mb == 900
    for name, more, says in (
            ("gpu/3g.12gb", {}, "profiles[0].worker_type: unknown worker_type"),
            ("gpu/1g.6gb", {"max_processes": 2}, "profiles[0].max_processes: unknown field"),
            ("gpu", {}, "measured.json"),
            ("gpu", {"file": "rows.csv", "max_processes": 1},
             "profiles[0].max_processes: every row has more processes: got 1; allowed: at least "
             "2")):
        asked["profiles"] = [{"worker_type": name, "file": "measured.json", **more}]
        with pytest.raises(InputFileError) as error:
            problem_from_document(asked, "p.json", tmp_path)
        assert says in str(error.value)


@pytest.mark.parametrize(("more", "says"), [
    ({"name": "gpu/1g", "memory_mb": 9}, "worker_types[1].name: named like an instance"),
    ({"name": "cpu", "memory_mb": 9, "workers": ["gpu-1/1g@0"]},
     "worker_types[1].workers: named like an instance"),
    ({"name": "cpu", "memory_mb": 9, "latency_like": "gpu"}, "no instance in common: got 'gpu'"),
    ({"name": "a30", "partitions": "A30-24GB", "latency_like": "gpu"},
     "worker_types[1].latency_like: types have no instance in common"),
])
def test_types_that_would_be_taken_for_instances_are_refused(more, says):
    """Or that would be as fast as instances that they have not, and so run nothing."""
    asked = document(random.Random(0), TINY, ("1g",), families=1, variants=1, gpus=1)
    asked["worker_types"].append({"count": 1, **more})
    with pytest.raises(InputFileError) as error:
        problem_from_document(asked)
    assert says in str(error.value)


def test_a_demand_that_no_instance_meets_is_explained():
    asked = document(random.Random(0), TINY, ("1g",), families=1, variants=1, gpus=1)
    asked["families"][0]["slo_ms"] = 0.1
    with pytest.raises(InfeasibleError, match=r"f0: no variant meets the SLO: got '0\.1 ms"):
        place(problem_from_document(asked))
    shortest_ms = min(e["latency_ms"] for e in asked["variants"][0]["latency"]
                      if e["memory_mb"] <= 10)
    asked["rules"] = {"in_time_quantile": 0.99, "headroom": 0.1}
    with pytest.raises(InfeasibleError, match=(
            rf"at least {1.1 * shortest_ms:g} ms \(shortest latency {shortest_ms:g} ms, head")):
        place(problem_from_document(asked))
    del asked["rules"]
    asked["families"][0] |= {"slo_ms": 1000, "demand_qps": 1e6}
    with pytest.raises(InfeasibleError, match=r"f0 serves .* workers of type gpu \(1\)"):
        place(problem_from_document(asked))


def test_the_program_does_not_grow_with_the_gpus():
    from placement_milp.formulation import formulate

    sizes = []
    for gpus in (2, 2000):
        asked = document(random.Random(0), "A100-80GB", FIVE, families=4, variants=2, gpus=gpus)
        program = formulate(problem_from_document(asked))
        sizes.append((len(program.lp.variables()), len(program.constraints)))
    assert sizes[0] == sizes[1]


def test_whole_and_cut_gpus_of_several_types_serve_together():
    """A family that only whole GPUs run, one that fits small instances, and prices that differ."""
    asked = document(random.Random(3), "A100-80GB", FIVE, families=2, variants=2, gpus=3)
    asked["worker_types"] += [
        {"name": "a30", "count": 2, "cost_per_hour": 1, "partitions": "A30-24GB"},
        {"name": "l4", "count": 3, "memory_mb": 24000, "cost_per_hour": 0.5}]
    asked["families"].append({"name": "whole", "demand_qps": 150, "slo_ms": 100})
    asked["variants"].append({
        "name": "w", "family": "whole", "accuracy": 0.9, "memory_mb": 9000, "latency": [
            {"worker_type": "l4", "batch": 8, "latency_ms": 45},
            {"worker_type": "a30/2g.12gb", "batch": 8, "latency_ms": 50}]})
    asked["objective"] = {"kind": "cheapest"}
    placement = place(problem_from_document(asked))
    only_positions(placement)
    whole = next(family for family in placement.families if family.name == "whole")
    assert whole.served_share == pytest.approx(1)
    # One L4 takes 177 requests per second for half the price of an A30.
    assert [len(g.workers) for g in placement.groups if g.worker_type == "l4"] == [1]
    assert placement.cost_per_hour == pytest.approx(
        0.5 + 3 * sum(gpu.worker_type == "gpu" for gpu in placement.gpus))


def test_a_later_stage_that_finds_more_of_an_earlier_one_is_what_is_claimed():
    """With a wide gap the first stage stops early, and the second one passes it."""
    for seed in range(6):
        asked = document(random.Random(seed), "A100-80GB", FIVE, families=5, variants=3, gpus=3)
        for family in asked["families"]:
            family["demand_qps"] *= 8
        problem = problem_from_document({**asked, "objective": {"kind": "max-min"}})
        try:
            placement = place(problem, Limits(gap=0.3))
        except InfeasibleError:
            continue
        first, second = placement.stages
        worst = min(family.effective_accuracy for family in placement.families)
        assert first.objective == pytest.approx(worst, abs=1e-6)
        assert first.objective <= first.dual_bound + 1e-6
        assert second.metric == "effective-accuracy"


def test_moves_are_fewer_where_they_have_a_price(reference_dir):
    """From scenario 3 to 4, at equal GPUs."""
    folder = reference_dir / "partitions"
    table = read_rows(folder / "parvagpu_scenarios.csv")

    def scenario(number: str, **changes: Any) -> Problem:
        return problem_from_document({
            "format": "ramsis.placement-problem/1", "name": number,
            "objective": {"kind": "fewest-workers"}, "rules": {"latency_share_of_slo": 0.45},
            "families": [{"name": row.text("model"), "demand_qps": row.number("rate_rps"),
                          "slo_ms": row.number("slo_ms")} for row in table.rows
                         if row.text("scenario") == number],
            "worker_types": [{"name": "a100", "count": 20, "partitions": "A100-80GB",
                              "instance_ms": 2000}],
            "profiles": [{"worker_type": "a100", "file": "parvagpu_profiles.csv",
                          "max_processes": 3}], **changes}, "scenario", folder)

    def touched(placement: Placement) -> int:
        now = {holding.worker for holding in placement.problem.current}
        return (sum(len(gpu.made) + len(gpu.destroyed) for gpu in placement.gpus)
                + sum(move.worker in now and bool(move.load) for move in placement.moves))

    before = place(scenario("3"))
    now = [{"worker": worker, "variants": [name for use in group.uses for name in use.variants]}
           for group in before.groups for worker in group.workers]
    fresh = place(scenario("4", current=now))
    priced = place(scenario("4", current=now, objective={
        "kind": "fewest-workers", "moving_price": 0.001}))
    assert fresh.workers_in_use == priced.workers_in_use == 7
    assert priced.status == "optimal"
    only_positions(priced)
    assert 2 * touched(priced) < touched(fresh)


@pytest.mark.slow
def test_two_hundred_gpus_and_forty_models(reference_dir):
    folder = reference_dir / "partitions"
    rng = random.Random(2)
    table = [row for row in read_rows(folder / "parvagpu_scenarios.csv").rows
             if row.text("scenario") == "6"]
    rows = [rng.choice(table) for _ in range(40)]
    asked = {
        "format": "ramsis.placement-problem/1", "name": "many",
        "objective": {"kind": "fewest-workers"}, "rules": {"latency_share_of_slo": 0.45},
        "families": [{"name": f"{i}/{row.text('model')}",
                      "demand_qps": rng.uniform(1.5, 4.6) * row.number("rate_rps"),
                      "slo_ms": rng.uniform(0.35, 1.2) * row.number("slo_ms")}
                     for i, row in enumerate(rows)],
        "worker_types": [{"name": "a100", "count": 400, "partitions": "A100-80GB"}],
        "variants": [{"name": f"{i}/{row.text('model')}", "family": f"{i}/{row.text('model')}",
                      "accuracy": 1, "memory_mb": 0, "latency": []}
                     for i, row in enumerate(rows)],
        "profiles": [{"worker_type": "a100", "file": "parvagpu_profiles.csv",
                      "max_processes": 3}]}
    placement = place(problem_from_document(asked, "many", folder), Limits(0.01, 60))
    assert placement.gap is not None
    assert placement.gap <= 0.01
    assert placement.workers_in_use > 100


def test_a_search_that_left_loading_unspared_is_made_good(monkeypatch):
    """A solver that stops early may keep less loaded than its own counts allow."""
    from placement_milp import optimise

    programs = []
    keep = optimise._keep

    def forgetful(program: Any) -> None:
        for x in program.kept.values():
            x.varValue = 0.0
        programs.append(program)
        keep(program)

    monkeypatch.setattr(optimise, "_keep", forgetful)
    rng = random.Random("accuracy less moves 3")
    asked = document(rng, TINY, ("1g", "2g", "3g"), families=2, variants=2, gpus=2)
    asked["current"] = current(rng, asked)
    asked["objective"] = {"kind": "effective-accuracy", "moving_price": 0.02}
    placement = place(problem_from_document(asked))
    only_positions(placement)
    assert any(x.varValue > 0 for program in programs for x in program.kept.values())
