"""Policies of sharing: figures that are known, plans by hand, and what is refused."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import igniter as igniter_script
import numpy as np
import pytest

from placement_milp import Latency, problem_from_document
from placement_milp.backend import SOLVERS, Limits
from ramsis.errors import InputFileError, InvalidValueError
from ramsis.plugins import trusting
from ramsis.studies.sharing import (
    Gpu,
    Igniter,
    Program,
    Replica,
    SharedModel,
    Usher,
    check_replicas,
    gpus_of,
    groups_of,
    models_of,
    plan,
    policies,
    problem_of,
    register,
)
from ramsis.studies.sharing.bound import goodput_bound_rps
from ramsis.studies.sharing.gpu.interference import THESIS
from ramsis.studies.sharing.gpu.profile import SharedBatch, SharingProfile
from ramsis.studies.sharing.igniter import CacheTerm, GpuWorkload, PowerTerm, SchedulingTerm
from ramsis.studies.sharing.presets import gpu_sharing, igniter, queue_aware, usher, wao_usher
from tests.placement.samples import problem, shared_problem
from tests.slow import slow_after

VISION = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19")


def _models(
    profile: SharingProfile, names: Sequence[str], rps: float, slo_ms: float
) -> tuple[SharedModel, ...]:
    return models_of(profile, dict.fromkeys(names, rps), slo_ms)


def _rows(
    model: str, *rows: tuple[int, float, float, float]
) -> dict[str, tuple[SharedBatch, ...]]:
    """Batch, latency, memory, and one share for all metrics."""
    return {"gpu": tuple(SharedBatch(model, "gpu", b, ms, memory, share, share, share)
                         for b, ms, memory, share in rows)}


@pytest.mark.parametrize(("names", "rps", "slo_ms", "usher_rps", "milp_rps"), [
    (("alexnet", "gpt2", "resnet50", "t5"), 400, 200, 800, 1092.04),
    (("resnet50", "vgg19", "mobilenet_v2", "gpt2", "bert"), 400, 300, 793.57, 1331.19),
    (("resnet50", "alexnet", "mobilenet_v2", "bert"), 500, 200, 1500, 1624.88),
])
def test_usher_and_the_program_beside_each_other(v100, names, rps, slo_ms, usher_rps, milp_rps):
    models = _models(v100, names, rps, slo_ms)
    assert plan("usher", models, gpus_of(4)).goodput_rps == pytest.approx(usher_rps, abs=0.005)
    assert plan("ao-milp", models, gpus_of(4)).goodput_rps == pytest.approx(milp_rps, abs=0.005)


def test_usher_replicates_as_printed(v100):
    models = _models(v100, ("alexnet", "gpt2", "resnet50", "t5"), 400, 200)
    assert [(r.model, r.batch) for r in plan("usher", models, gpus_of(4)).replicas] == [
        ("t5", 8), ("t5", 8), ("t5", 8), ("resnet50", 32)]
    models = _models(v100, ("resnet50", "alexnet", "mobilenet_v2", "bert"), 500, 200)
    found = plan("usher", models, gpus_of(4))
    assert len({r.gpu for r in found.replicas}) == 3
    assert found.unserved == {"bert": "all of its load takes 5 GPUs, of which there are 4"}
    models = _models(v100, VISION, 500, 200)
    found = plan("usher", models, gpus_of(8))
    assert len({r.gpu for r in found.replicas}) == 6
    assert sorted(r.model for r in found.replicas) == sorted([*VISION, "efficientnet_b7"])
    assert {r.batch for r in found.replicas if r.model == "efficientnet_b7"} == {8}


def test_parameters_of_a_policy_follow_its_name(v100):
    models = _models(v100, VISION, 500, 200)
    free, held = (plan(name, models, gpus_of(6)).replicas for name in ("usher:mps=no", "usher"))
    assert [replace(replica, mps_share=None) for replica in held] == list(free)
    assert all(replica.mps_share for replica in held)
    changed = Igniter(rate_share=0.95, largest_batch=8)
    assert policies.sharing_policy("igniter:rate_share=0.95:largest_batch=8") == changed
    for name in ("usher:mps=perhaps", "usher:mps", "usher:shares=no", "wsm-milp:metric=occupancy"):
        with pytest.raises(InputFileError, match="not a parameter of the policy: got"):
            policies.sharing_policy(name)


def test_groups_of_models_that_complement_each_other(v100):
    models = _models(v100, ("resnet50", "vgg19", "mobilenet_v2", "gpt2", "bert"), 400, 300)
    assert [{m.name for m in group} for group in groups_of(models, "gpu")] == [
        {"bert", "resnet50", "gpt2"}, {"vgg19", "mobilenet_v2"}]
    alone = groups_of(models, "gpu", Usher(group_size=1))
    assert [len(group) for group in alone] == [1] * 5
    opposite = [SharedModel(name, 10, 100, _rows(name, (8, 10, memory, share)))
                for name, memory, share in (("a", 0.9, 0.1), ("b", 0.2, 0.4), ("c", 0.1, 0.9),
                                            ("d", 0.4, 0.2))]
    pairs = groups_of(opposite, "gpu", Usher(group_size=2))
    assert sorted({m.name for m in group} for group in pairs) in (
        [{"a", "c"}, {"b", "d"}], [{"b", "d"}, {"a", "c"}])


def test_usher_alternates_memory_and_compute_heavy_models():
    """By hand: two GPUs; each holds a memory-heavy and a compute-heavy model."""
    models = [SharedModel(name, 100, 50, _rows(name, (1, 10, memory, share)))
              for name, memory, share in (("m", 0.8, 0.3), ("n", 0.7, 0.4), ("c", 0.2, 0.7),
                                          ("d", 0.3, 0.6))]
    found = plan("usher", models, gpus_of(3))
    assert [(r.model, r.gpu, r.mps_share) for r in found.replicas] == [
        ("m", "gpu-0", 0.3), ("c", "gpu-0", 0.7), ("n", "gpu-1", 0.4), ("d", "gpu-1", 0.6)]
    whole = [replace(models[0], rate_rps=450)]  # five GPUs are needed, three there
    assert plan("usher", whole, gpus_of(3)).replicas == ()
    in_part = plan("", whole, gpus_of(3), Usher(whole_multiples=False, mps=False))
    assert in_part.goodput_rps == pytest.approx(300)
    assert {r.mps_share for r in in_part.replicas} == {None}
    with pytest.raises(InvalidValueError, match="unknown metric"):
        Usher(metric="memory")


@pytest.mark.parametrize(("total_rps", "optimum"),
                         slow_after(1, [(3000, 2989.78), (4000, 3612.17), (5000, 4043.76)]))
def test_the_program_by_utilisation(v100, total_rps, optimum):
    found = plan("wsm-milp", _models(v100, VISION, total_rps / 5, 250), gpus_of(4))
    assert found.goodput_rps == pytest.approx(optimum, abs=0.005)


def _programs_order(
    models: Sequence[SharedModel], replicas: Sequence[Replica]
) -> tuple[object, ...]:
    """What decides between plans: goodput, GPUs, batches, then the first models first."""
    served = 0.0
    for model in models:
        rates = [row.rate_rps for r in replicas if r.model == model.name
                 and (row := model.batch("gpu", r.batch))]
        served += min(model.rate_rps, sum(rates))
    batches = [[r.batch for r in replicas if r.model == model.name] for model in models]
    holds = [tuple(all((r.model, r.gpu) != (model.name, gpu.name) for r in replicas)
                   for model in models) for gpu in gpus_of(2)]
    return (-round(served, 3), len({r.gpu for r in replicas}), sum(map(sum, batches)),
            [max(sizes, default=0) for sizes in batches], [len(sizes) for sizes in batches], holds)


@pytest.mark.parametrize("seed", range(6))
def test_of_equal_plans_the_program_takes_the_first_with_any_solver(seed):
    """Against all plans of three models on two GPUs."""
    rng = np.random.default_rng(seed)
    models = [SharedModel(name, float(rng.choice([90, 130, 410])), 50, _rows(
        name, *((n, 10.0 + 0.5 * n, 0.1, float(share)) for n, share in zip(
            (2, 4, 8), rng.choice([0.3, 0.4, 0.6, 0.7], 3), strict=True)))) for name in "abc"]
    plans = []
    for sizes in itertools.product((2, 4, 8), repeat=3):
        for places in itertools.product((False, True), repeat=6):
            replicas = [Replica(m.name, f"gpu-{i % 2}", sizes[i // 2])
                        for i, m in enumerate(m for m in models for _ in range(2)) if places[i]]
            used = [sum(row.utilisation for r in replicas if r.gpu == gpu.name for m in models
                        if m.name == r.model and (row := m.batch("gpu", r.batch)))
                    for gpu in gpus_of(2)]
            if max(used) <= 1 + 1e-9:
                plans.append(replicas)
    best = min(plans, key=lambda replicas: _programs_order(models, replicas))
    for solver in SOLVERS:
        program = Program(gpu_sharing, "utilisation", Limits(solver=solver))
        assert sorted(program(models, gpus_of(2)), key=str) == sorted(best, key=str)


def test_a_seed_gives_some_other_plan_that_serves_as_much():
    models = [SharedModel(name, 90, 50, _rows(name, *((n, 10.0 + n, 0.1, 0.2)
                                                      for n in (2, 4, 8, 16)))) for name in "abc"]
    found = [plan("", models, gpus_of(3), Program(partial(gpu_sharing, tie=tie), "utilisation"))
             for tie in (None, *range(5))]
    assert [one.goodput_rps for one in found] == [pytest.approx(270)] * 6
    assert len({one.replicas for one in found}) > 2


def test_wao_usher_shares_gpus_that_usher_does_not(v100):
    names = ("resnet50", "mobilenet_v2", "bert", "gpt2")
    found = plan("wao-usher", _models(v100, names, 300, 300), gpus_of(4))
    assert len({r.gpu for r in found.replicas}) == 3  # and bert beside gpt2 on each, as printed
    for gpu in ("gpu-0", "gpu-1", "gpu-2"):
        held = {r.model: r.batch for r in found.replicas if r.gpu == gpu}
        assert {"bert": 4, "gpt2": 4}.items() <= held.items()


def test_igniter_raises_shares_until_all_are_in_time():
    """By hand: alone each needs 25 %; beside the other the cache makes it 14 % slower."""
    a, b = (SharedModel(name, 80, 40, _rows(name, (1, 10, 0.1, 0.3))) for name in "ab")
    calm = Igniter(scheduling=SchedulingTerm(0), cache=CacheTerm(0))
    alone = plan("", [a], gpus_of(2), calm).replicas
    # 80 a second in 12.5 ms: a share of 24 %, rounded up to the next step.
    assert [(r.batch, r.mps_share) for r in alone] == [(1, pytest.approx(0.25))]
    both = plan("", [a, b], gpus_of(2), calm).replicas
    assert [r.gpu for r in both] == ["gpu-0", "gpu-0"]
    disturbed = Igniter(scheduling=SchedulingTerm(0), cache=CacheTerm(0.5))
    shares = [r.mps_share or 0 for r in plan("", [a, b], gpus_of(2), disturbed).replicas]
    # 1 + 0.5 x 0.275 slower: 10 ms x 1.1375 x 0.3 / share within 12.5 ms takes 27.3 %.
    assert shares == [pytest.approx(0.275)] * 2
    apart = Igniter(scheduling=SchedulingTerm(20))
    assert {r.gpu for r in plan("", [a, b], gpus_of(2), apart).replicas} == {"gpu-0", "gpu-1"}


def test_igniters_terms_are_those_of_the_published_v100():
    """A kernel waits 0.0003 and 0.0146 ms beside 1 and 4 others; 400 W leave 1431 of 1530 MHz."""
    delay = SchedulingTerm()
    assert delay("vgg19", 0) == 0
    assert delay("vgg19", 1) == pytest.approx(29 * 0.0003, abs=29 * 3e-4)
    assert delay("resnet50", 4) == pytest.approx(80 * 0.0146, rel=0.02)
    power = PowerTerm()
    full = GpuWorkload(SharedBatch("a", "gpu", 4, 10, 0.1, 1, 1, 1), 1.0)
    assert power([]) == 1.0
    assert 1530 * replace(power, busy_w=400.2 - 53.5)([full]) == pytest.approx(1431, abs=5)
    # Alone on a GPU a batch takes what the profile says, however much power it uses.
    assert Igniter().time_ms(full, []) == pytest.approx(10)


def test_a_model_that_is_too_large_gets_gpus_of_its_own(v100):
    """By hand, 500 requests per second of efficientnet_b7 within 200 ms."""
    models = _models(v100, ("efficientnet_b7", "alexnet"), 500, 200)
    # 50 requests take 100 ms to gather and 130 to run. 32 take 88.3 ms: 362 per second, of which
    # 90 % are taken. Of the 174 that are left 18 are gathered. GPUs of one model are the last.
    replicas, needed = Igniter().everything(models, gpus_of(8))
    assert [(r.model, r.gpu, r.batch) for r in replicas] == [
        ("efficientnet_b7", "gpu-0", 18), ("alexnet", "gpu-0", 50),
        ("efficientnet_b7", "gpu-1", 32)]
    assert (needed, replicas[-1].mps_share) == (2, 1.0)
    # Batches of 5 take 30 ms: 149 of 166 per second, three times, and 52 are left.
    small = Igniter(largest_batches={"efficientnet_b7": 5})
    assert [r.batch for r in small(models[:1], gpus_of(8))] == [6, 5, 5, 5]
    # Sizes that were measured: 32, and 16 of the 18 requests of what is left.
    assert [r.batch for r in Igniter(measured_batches=True)(models[:1], gpus_of(8))] == [16, 32]
    nothing = Igniter(budget_share=0.1)  # 20 ms, and no batch takes less than 29.9
    assert nothing(models[:1], gpus_of(8)) == []
    with pytest.raises(InputFileError, match="rate_share: not a share"):
        Igniter(rate_share=1.5)


def test_igniter_is_cut_off_where_gpus_end(v100):
    models = _models(v100, VISION, 500, 200)
    replicas, needed = Igniter().everything(models, gpus_of(8))
    assert needed == 4
    assert plan("igniter", models, gpus_of(2)).replicas == tuple(
        r for r in replicas if r.gpu in {"gpu-0", "gpu-1"})


def test_igniter_has_the_printed_figures_of_both_workloads(v100):
    """Figures 6.8, 6.9 and 6.14 with one set of parameters."""
    row = igniter_script.row_of(v100, "thesis", igniter_script.SETUPS["thesis"])
    assert row["gpus_mix"] == 6
    assert sum(row["mix_rps"].values()) > 0.99 * 4 * 274.6
    assert row["short"] == 5
    assert row["batches"] == [9, 5, 5, 5]
    assert row["vgg19_beside_alexnet"]
    assert row["densenet121_beside_resnet50"]


def test_a_policy_of_ones_own_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(policies, "_POLICIES", dict(policies._POLICIES))

    def one_each(models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        return [Replica(m.name, gpu.name, 4) for m, gpu in zip(models, gpus, strict=False)]

    register("one-of-each", one_each)
    models = [SharedModel(name, 100, 50, _rows(name, (4, 10, 0.5, 0.5))) for name in "ab"]
    assert plan("one-of-each", models, gpus_of(2)).goodput_rps == 200
    with pytest.raises(InputFileError, match="policy name is in use"):
        register("usher", one_each)
    path = tmp_path / "mine.py"
    path.write_text("from ramsis.studies.sharing import Replica\n"
                    "def all_on_one(models, gpus):\n"
                    "    return [Replica(m.name, gpus[0].name, 4) for m in models]\n")
    with trusting([f"{path}:all_on_one"]):
        found = plan(f"{path}:all_on_one", models, gpus_of(2))
    assert {r.gpu for r in found.replicas} == {"gpu-0"}
    path.write_text(path.read_text() + "def boom(models, gpus):\n    raise KeyError('oops')\n"
                    "def junk(models, gpus):\n    return [('a', 1)]\nvalue = 3\n")
    (tmp_path / "raises.py").write_text("raise RuntimeError('at import')\n")
    for name, message in (
            ("mine", "unknown policy"),
            (f"{path}:other", "cannot import policy .*allowed: all_on_one, boom, junk"),
            (f"{path}:boom", r"mine.py, line 5, in boom: policy .* failed \(KeyError: 'oops'\)"),
            (f"{path}:junk", r"returns something else: got \('a', 1\)"),
            (f"{path}:value", "policy is not a function"),
            (f"{tmp_path}/raises.py:f",
             r"raises.py, line 1: cannot import policy .* \(RuntimeError: at import\)")):
        with trusting([name]), pytest.raises(InputFileError, match=message):
            plan(name, models, gpus_of(2))


@pytest.mark.parametrize(("replica", "message"), [
    (Replica("a", "gpu-7", 4), "GPU does not exist: got 'gpu-7'"),
    (Replica("x", "gpu-0", 4), "model does not exist: got 'x'"),
    (Replica("a", "gpu-0", 64), "batch does not fit the GPU: got 64"),
    (Replica("a", "gpu-0", 4, 1.2), "not a share: got 1.2"),
    (Replica("a", "gpu-0", 4, 0.6), "gpu-0: shares above 100 %: got 110.0"),
])
def test_what_gpus_cannot_hold_is_refused(replica, message):
    models = [SharedModel("a", 100, 50, _rows("a", (4, 10, 0.4, 0.5)))]
    with pytest.raises(InputFileError) as caught:
        check_replicas(models, gpus_of(2), [Replica("a", "gpu-0", 4, 0.5), replica])
    assert message in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", [
    "usher", "wao-usher", "igniter", "ao-milp", "wsm-milp", "alpaserve", "nexus", "queue-aware"])
def test_a_target_that_no_gpu_meets_is_a_plan_that_says_so(name):
    models = [SharedModel(one, 100, 5, _rows(one, (4, 10, 0.4, 0.5))) for one in "ab"]
    found = plan(name, models, gpus_of(2))
    assert found.goodput_rps == 0
    assert found.unserved == dict.fromkeys("ab", "no batch is within its SLO")
    bound = goodput_bound_rps(models, gpus_of(2), THESIS, duration_s=1)
    assert f"{bound:g}" == "0"


def test_other_bad_input_is_refused_in_a_line():
    models = [SharedModel("a", 100, 50, _rows("a", (4, 10, 0.6, 0.5)))]
    with pytest.raises(InputFileError, match="memory above 100 %"):
        check_replicas(models, gpus_of(2), [Replica("a", "gpu-0", 4)] * 2)
    with pytest.raises(InputFileError, match="a: model fits no GPU"):
        plan("usher", models, gpus_of(2, "other"))
    with pytest.raises(InputFileError, match="not a number of GPUs"):
        gpus_of(0)
    with pytest.raises(InputFileError, match=r"iGniter: cache\.per_utilisation: negative"):
        Igniter(cache=CacheTerm(-1))
    with pytest.raises(InputFileError, match="model is not in the profile"):
        models_of(SharingProfile(()), {"a": 1.0}, 1)
    with pytest.raises(InputFileError, match="a: rate_rps: not positive"):
        SharedModel("a", 0, 1, {})


@pytest.mark.parametrize("name", ["alpaserve", "nexus"])
def test_presets_of_other_papers_are_policies_too(name):
    models = [SharedModel(m, 100, 200, _rows(m, (4, 20, 0.3, 0.5), (8, 30, 0.4, 0.8)))
              for m in "ab"]
    found = plan(name, models, gpus_of(2))
    assert found.goodput_rps == pytest.approx(200)
    assert {r.model for r in found.replicas} == {"a", "b"}


def test_presets_read_problems(v100):
    models = _models(v100, ("alexnet", "gpt2", "resnet50", "t5"), 400, 200)
    asked = problem_of(models, gpus_of(4))
    found = usher(problem_from_document(asked.to_document()))
    assert sum(f.served_qps for f in found.families) == pytest.approx(800)
    assert "alexnet is not served" in found.notes[0]
    assert next(use.mps_share for g in found.groups for use in g.uses) == pytest.approx(0.9749)
    assert queue_aware(shared_problem()).families[0].served_qps == pytest.approx(100)
    for preset in (wao_usher, igniter):
        placement = preset(asked)
        assert all(use.mps_share for group in placement.groups for use in group.uses)
    bare = shared_problem()
    assert isinstance(bare.variants[0].latency[0], Latency)
    (group,) = usher(bare).groups
    assert [use.mps_share for use in group.uses] == [0.4, 0.4]
    with pytest.raises(InvalidValueError, match="family has several variants"):
        usher(problem())
    large = [replace(variant, memory_mb=10_000) if variant.name == "text" else variant
             for variant in bare.variants]
    with pytest.raises(InputFileError, match="sample: text: model fits no GPU"):
        usher(replace(bare, variants=tuple(large)))
