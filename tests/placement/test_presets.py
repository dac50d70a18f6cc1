"""Known schemes as presets: against results known from elsewhere, brute force and by hand."""

import csv
import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement_milp import Limits, Problem, check_placement, place, problem_from_document
from placement_milp.presets import (
    PRESETS,
    alpaserve,
    infaas,
    infadapter,
    jellyfish,
    nexus,
    proteus,
)
from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError
from ramsis.studies.sharing.gpu.profile import find_sharing_profile
from ramsis.studies.sharing.presets import gpu_sharing
from tests.placement.samples import document, documents, problem, variant
from tests.reference.placement import outcomes

SHARING = ("gpu-sharing", "usher", "wao-usher", "igniter", "queue-aware")
"""Presets that divide the processors of a worker among models, one of each family."""
OCCUPANCY, UTILISATION = "ach_occ_pct", "wavg_sm_util_pct"


def sharing(models: list[str], rps: float, slo_ms: float, gpus: int, column: str) -> Problem:
    """The models of the V100 on GPUs; memory in percent. Rows with gaps are left out.

    The latency that belongs to the printed throughput, as the printed one is rounded.
    """
    with find_sharing_profile("v100").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream)
                if row["latency_s"] and row["mem_cap_pct"] and row[column]]
    variants = []
    for model in models:
        variants.append({**variant(model, model, 1, 1, {}), "latency": [
            {"worker_type": "gpu", "batch": int(row["batch"]),
             "latency_ms": 1000 * int(row["batch"]) / float(row["throughput_rps"]),
             "memory_mb": float(row["mem_cap_pct"]), "compute_share": float(row[column]) / 100}
            for row in rows if row["model"] == model]})
    return problem_from_document(document(
        families=[{"name": m, "demand_qps": rps, "slo_ms": slo_ms} for m in models],
        worker_types=[{"name": "gpu", "count": gpus, "memory_mb": 100}], variants=variants))


@pytest.mark.parametrize(("models", "rps", "slo_ms", "optimum", "solver"), [
    (["alexnet", "gpt2", "resnet50", "t5"], 400, 200, 1092.04, "highs"),
    (["resnet50", "vgg19", "mobilenet_v2", "gpt2", "bert"], 400, 300, 1331.19, "highs"),
    (["resnet50", "alexnet", "mobilenet_v2", "bert"], 500, 200, 1624.88, "cbc"),
])
def test_sharing_by_occupancy_reaches_the_known_optima(models, rps, slo_ms, optimum, solver):
    asked = sharing(models, rps, slo_ms, 4, OCCUPANCY)
    placement = gpu_sharing(asked, Limits(solver=solver))
    assert placement.objective == pytest.approx(optimum, abs=0.01)
    assert placement.dual_bound == pytest.approx(optimum, abs=0.01)


@pytest.mark.parametrize(("gpus", "optimum"), [(1, 600), (3, 862.38), (5, 1096.80), (6, 1162.38)])
def test_sharing_by_utilisation_reaches_the_known_optima(gpus, optimum):
    asked = sharing(["resnet50", "mobilenet_v2", "bert", "gpt2"], 300, 300, gpus, UTILISATION)
    assert gpu_sharing(asked).objective == pytest.approx(optimum, abs=0.01)


def test_sharing_of_gpus_against_trying_everything():
    """Two models, two batches, two GPUs; at most one instance of each model where asked."""
    entries = {"a": [(1, 10, 0.5, 30), (4, 20, 0.7, 60)],
               "b": [(1, 20, 0.3, 40), (2, 30, 0.5, 50)]}
    rps = {"a": 150.0, "b": 120.0}
    asked = problem(
        families=[{"name": m, "demand_qps": rps[m], "slo_ms": 100} for m in entries],
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 100}],
        variants=[{"name": m, "family": m, "accuracy": 1, "memory_mb": 1, "latency": [
            {"worker_type": "gpu", "batch": b, "latency_ms": ms, "compute_share": share,
             "memory_mb": mb} for b, ms, share, mb in rows]} for m, rows in entries.items()])
    for replicas in (None, 1):
        best = 0.0
        for a, b in itertools.product(entries["a"], entries["b"]):
            for na, nb in itertools.product(itertools.product((0, 1), repeat=2), repeat=2):
                if any(x * a[2] + y * b[2] > 1 or x * a[3] + y * b[3] > 100
                       for x, y in zip(na, nb, strict=True)):
                    continue
                if replicas and max(sum(na), sum(nb)) > replicas:
                    continue
                best = max(best, min(rps["a"], sum(na) * 1000 * a[0] / a[1])
                           + min(rps["b"], sum(nb) * 1000 * b[0] / b[1]))
        assert gpu_sharing(asked, replicas=replicas).objective == pytest.approx(best)


def test_sharing_of_gpus_of_two_types_against_trying_everything():
    """Goodput, shares and memory depend on the type; a model has one batch on all of them."""
    entries = {"a": {"old": [(1, 20, 0.6, 30), (4, 50, 0.8, 60)],
                     "new": [(1, 10, 0.3, 20), (4, 20, 0.6, 40)]},
               "b": {"old": [(1, 30, 0.5, 40), (2, 50, 0.7, 50)],
                     "new": [(1, 20, 0.2, 30), (2, 25, 0.4, 30)]}}
    rps = {"a": 260.0, "b": 120.0}
    asked = problem(
        families=[{"name": m, "demand_qps": rps[m], "slo_ms": 100} for m in entries],
        worker_types=[{"name": kind, "count": 1, "memory_mb": 100} for kind in ("old", "new")],
        variants=[{"name": m, "family": m, "accuracy": 1, "memory_mb": 1, "latency": [
            {"worker_type": kind, "batch": b, "latency_ms": ms, "compute_share": share,
             "memory_mb": mb} for kind, rows in kinds.items() for b, ms, share, mb in rows]}
            for m, kinds in entries.items()])
    best = 0.0
    for sizes in itertools.product(range(2), repeat=2):
        chosen = {m: {kind: rows[size] for kind, rows in entries[m].items()}
                  for m, size in zip(entries, sizes, strict=True)}
        for places in itertools.product((0, 1), repeat=4):
            placed = {(m, kind): places[2 * i + j] for i, m in enumerate(entries)
                      for j, kind in enumerate(("old", "new"))}
            if all(sum(placed[m, kind] * chosen[m][kind][column] for m in entries) <= limit
                   for kind in ("old", "new") for column, limit in ((2, 1), (3, 100))):
                best = max(best, sum(min(rps[m], sum(
                    placed[m, kind] * 1000 * row[0] / row[1] for kind, row in chosen[m].items()))
                    for m in entries))
    placement = gpu_sharing(asked)
    assert placement.objective == pytest.approx(best) == 340
    assert {worker for group in placement.groups for worker in group.workers} == {"old-1", "new-1"}


def test_sharing_needs_one_model_and_its_share():
    with pytest.raises(InvalidValueError, match="vision: family has several variants: got 2"):
        gpu_sharing(problem())
    with pytest.raises(InfeasibleError, match="no batch is within its SLO and has a compute_sha"):
        gpu_sharing(problem(variants=document()["variants"][1:]))


@given(chosen=documents(rules=False))
@settings(max_examples=8, deadline=None)
def test_proteus_serves_all_of_a_demand_divided_as_little_as_possible(chosen):
    asked = problem_from_document(chosen)
    try:
        placement = proteus(asked, beta=1.25)
    except InfeasibleError:
        return
    times = round(float(placement.notes[0].split("^")[1].split(" ")[0])) if placement.notes else 0
    largest = _largest_batches(asked)

    def best(k: int) -> float | None:
        """The most accurate way to serve all of the demand over 1.25^k."""
        divided = replace(largest, families=tuple(
            replace(f, demand_qps=f.demand_qps / 1.25**k, min_served=1.0)
            for f in largest.families))
        return max((o.effective + divided.objective.unserved_penalty * (1 - o.served)
                    for o in outcomes(divided)), default=None)

    assert best(times) == pytest.approx(placement.objective, abs=2e-6)
    assert times == 0 or best(times - 1) is None
    for family in placement.families:
        assert family.served_share == pytest.approx(1.25**-times, abs=1e-6)


def _largest_batches(asked: Problem) -> Problem:
    """The problem with the largest usable batch of each variant and type only, on one worker."""
    share = asked.rules.latency_share_of_slo
    slo = {f.name: f.slo_ms for f in asked.families}
    variants = []
    for v in asked.variants:
        usable = [e for e in v.latency if e.latency_ms <= share * slo[v.family]]
        kept = tuple(e for e in usable if e.batch == max(
            o.batch for o in usable if o.worker_type == e.worker_type))
        variants.append(replace(v, latency=kept))
    return replace(asked, variants=tuple(variants))


@given(chosen=documents(rules=False))
@settings(max_examples=8, deadline=None)
def test_jellyfish_serves_first(chosen):
    asked = replace(problem_from_document(chosen))
    try:
        placement = jellyfish(asked)
    except InfeasibleError:
        return
    everything = list(outcomes(asked, served_first=True))
    most = max(o.served for o in everything)
    assert placement.objective == pytest.approx(most, abs=2e-6)
    penalty = asked.objective.unserved_penalty
    accurate = max(o.effective + penalty * (1 - o.served) for o in everything
                   if o.served > most - 1e-6)
    assert placement.stages[1].objective == pytest.approx(accurate, abs=1e-5)


def test_infadapter_pays_for_accuracy_only_what_it_is_worth():
    """The accurate variant takes two workers instead of one, 0.2 of accuracy for 3 an hour."""
    asked = problem(
        families=[{"name": "vision", "demand_qps": 80, "slo_ms": 100}],
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 1000, "cost_per_hour": 3}],
        variants=[variant("small", "vision", 0.7, 100, {("gpu", 4): 40}),
                  variant("large", "vision", 0.9, 100, {("gpu", 2): 40})])
    cheap, dear = infadapter(asked, cost_price=0.07), infadapter(asked, cost_price=0.06)
    assert cheap.families[0].accuracy == pytest.approx(0.7)
    assert cheap.objective == pytest.approx(0.7 - 0.07 * 3)
    assert dear.families[0].accuracy == pytest.approx(0.9)
    assert dear.objective == pytest.approx(dear.families[0].effective_accuracy - 0.06 * 6)
    with pytest.raises(InfeasibleError, match=r"vision serves 0\.2 of its demand"):
        infadapter(replace(asked, families=(replace(asked.families[0], demand_qps=1000.0),)))


def test_infaas_takes_the_cheapest_that_will_do():
    """Per query a cpu is dearer for the small variant; accuracy rules that one out later."""
    placement = infaas(problem())
    held = [(g.worker_type, len(g.workers), g.uses[0].variants[0]) for g in placement.groups]
    assert held == [("gpu", 1, "small"), ("gpu", 1, "bert")] or held == [
        ("gpu", 1, "small"), ("cpu", 2, "bert")]
    assert placement.status == "heuristic"
    families = document()["families"]
    families[0]["min_accuracy"] = 0.8
    strict = infaas(problem(families=families))
    assert all("small" not in use.variants for g in strict.groups for use in g.uses)


def test_nexus_packs_by_hand():
    """Two sessions fill a worker and a half each at batch 4; their halves fit one together."""
    asked = problem(
        families=[{"name": "a", "demand_qps": 120, "slo_ms": 100},
                  {"name": "b", "demand_qps": 120, "slo_ms": 100}],
        worker_types=[{"name": "gpu", "count": 4, "memory_mb": 1000}],
        variants=[variant(name, name, 0.9, 400, {("gpu", 1): 12, ("gpu", 4): 40, ("gpu", 8): 80})
                  for name in ("a", "b")])
    placement = nexus(asked)
    assert sum(len(group.workers) for group in placement.groups) == 3
    assert all(f.served_share == pytest.approx(1.0) for f in placement.families)
    (shared,) = [group for group in placement.groups if len(group.uses) == 2]
    assert shared.cycle_ms == pytest.approx(50.0)  # batches of 1 at 20 QPS, together 24 of 50 ms
    assert [use.batch for use in shared.uses] == [1, 1]
    crowded = nexus(replace(asked, worker_types=(replace(asked.worker_types[0], count=2),)))
    assert crowded.notes == ("1 of the workers that it asks for are not there",)
    assert all(f.served_share == pytest.approx(100 / 120) for f in crowded.families)
    apart = nexus(problem_from_document({**document(
        families=[{"name": f.name, "demand_qps": 120, "slo_ms": 100} for f in asked.families],
        worker_types=[{"name": "gpu", "count": 4, "memory_mb": 1000}],
        variants=[variant(name, name, 0.9, 400, {("gpu", 1): 12, ("gpu", 4): 40})
                  for name in ("a", "b")],
        colocation=[{"kind": "apart", "members": ["a", "b"]}])}))
    assert sum(len(group.workers) for group in apart.groups) == 4
    with pytest.raises(InvalidValueError, match="Nexus packs workers of one type: got 2"):
        nexus(problem())


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_alpaserve_finds_the_largest_tolerance(data):
    asked = problem_from_document(data.draw(documents(sharing=data.draw(st.booleans()))))
    asked = replace(asked, rules=replace(asked.rules, max_workers=None, max_cost_per_hour=None),
                    families=tuple(replace(f, max_workers=None) for f in asked.families))
    try:
        placement = alpaserve(asked)
    except InfeasibleError:
        return
    assert placement.status == "optimal"
    served = min(1.0, placement.objective)
    assert min(f.served_share for f in placement.families) == pytest.approx(served, abs=1e-6)
    # At the demand of the tolerance everything can be served, and a hundredth above it not.
    best = {f.name: max((v for v in asked.variants if v.family == f.name and any(
        v.name in use.variants for g in placement.groups for use in g.uses)),
        key=lambda v: v.accuracy, default=None) for f in asked.families}
    assume(all(v is not None for v in best.values()))
    for factor, possible in ((0.999, True), (1.01, False)):
        scaled = replace(
            asked, variants=tuple(v for v in best.values() if v is not None),
            families=tuple(replace(f, demand_qps=f.demand_qps * placement.objective * factor,
                                   min_served=1.0, min_accuracy=0.0) for f in asked.families))
        assert any(True for _ in outcomes(scaled)) == possible


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"nexus", *SHARING}))
def test_no_scheme_beats_the_program(name):
    """On its own terms, effective accuracy, the program is at least as good as every preset."""
    families = tuple(replace(f, min_served=None, min_accuracy=0.0, demand_qps=4 * f.demand_qps)
                     for f in problem().families)
    asked = replace(problem(objective={"kind": "effective-accuracy"}), families=families)
    best = place(asked)
    try:
        theirs = PRESETS[name](asked, Limits())
    except InfeasibleError:
        assert name == "infadapter"
        return
    assert theirs.effective_accuracy <= best.effective_accuracy + 1e-6
    check_placement(asked, replace(theirs, stages=()))


def test_a_batch_that_a_worker_type_does_not_list_is_refused():
    """Usher takes 4 on both types, which lies between 1 and 8 on the second."""
    asked = problem(
        families=[{"name": "vision", "demand_qps": 900, "slo_ms": 100}],
        variants=[{
            "name": "m", "family": "vision", "accuracy": 1, "memory_mb": 10, "latency": [
                {"worker_type": kind, "batch": batch, "latency_ms": ms, "compute_share": 0.4}
                for kind, batch, ms in (("gpu", 4, 10), ("cpu", 1, 5), ("cpu", 8, 30))]}])
    with pytest.raises(InputFileError, match=r"not listed for this worker type.*4 on cpu"):
        PRESETS["usher"](asked, Limits())


@pytest.mark.parametrize(("name", "rule"), [
    ("proteus", "in_time_quantile"), ("infaas", "in_time_quantile"), ("nexus", "in_time_quantile"),
    ("infaas", "max_workers"), ("nexus", "max_workers"),
    ("infaas", "max_cost_per_hour"), ("nexus", "max_cost_per_hour"),
])
def test_a_rule_that_a_scheme_does_not_keep_is_refused(name, rule):
    asked = problem_from_document(document(rules={rule: 0.9 if "quantile" in rule else 1}))
    with pytest.raises(InvalidValueError, match=f"rules.{rule}: preset {name} does not know"):
        PRESETS[name](asked, Limits())
