"""One policy: nine models, D = 100, queues up to 32, 60 workers, SLO 150 ms."""

from dataclasses import replace

import numpy as np
import pytest

from ramsis import profiles
from ramsis.mdp import value_iteration
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.worker.explicit import build_explicit
from tests.bench.cases import LOADS_QPS, SLO_MS, WORKERS, Work, solve
from tests.bench.fresh import solved_freshly
from tests.bench.references import Explicit, pymdptoolbox, quantecon
from tests.bench.timing import Timing, repeated, several

TARGET_S = 0.050
TARGET_MB = 300.0
MEAN_LOAD_QPS = LOADS_QPS[1]


def _check(work: Work, gain: float) -> None:
    """The work of a whole policy, whose gain is the optimum of the explicit rows."""
    assert (work.models, work.states) == (9, 32 * 101)
    assert work.latencies >= 32
    assert work.nodes >= 2 * 100
    assert work.rounds >= 3
    assert work.gap < 1e-6
    assert work.gain == pytest.approx(gain, abs=1e-4)


@pytest.mark.parametrize("load_qps", LOADS_QPS)
def test_one_policy(benchmark, ledger, table, load_qps):
    solved, timing = repeated(benchmark, lambda: solve(table, load_qps), rounds=25, warmup=2)
    optimum = value_iteration(build_explicit(solved.mdp.problem).mdp).gain
    assert optimum is not None
    _check(Work.of(solved), optimum)
    ledger.time(f"build, solve, analyse: 9 models, {load_qps:g} QPS", timing, TARGET_S)


def test_against_solvers_on_explicit_rows(benchmark, ledger, table):
    solved, timing = repeated(benchmark, lambda: solve(table, MEAN_LOAD_QPS), rounds=25, warmup=2)
    build_explicit(solved.mdp.problem)  # compiled now
    explicit = Explicit.of(solved.mdp.problem)
    assert explicit.rows.mdp.n_states == Work.of(solved).states + 2
    fast, slow = quantecon(explicit), pymdptoolbox(explicit)
    exact = value_iteration(explicit.rows.mdp, discount=0.99).value
    for reference in (fast, slow):
        assert np.abs(reference.value - exact).max() < 1e-4
    for name, reference in (("pymdptoolbox", slow), ("QuantEcon", fast)):
        ledger.ratio(timing, reference.total, f"explicit rows and {name}, {MEAN_LOAD_QPS:g} QPS")
        ledger.ratio(timing, reference.solve, f"{name} alone, the rows given")


def test_a_policy_with_all_that_its_file_states(benchmark, ledger, profile_file):
    """From the profile: planned as profiled, and on top headroom and intervals."""
    images = profiles.load(str(profile_file))
    usual = SynthesisSettings(slo_ms=SLO_MS, workers=WORKERS)
    pure, serve = replace(usual, headroom=0.0), replace(usual, headroom=0.0, late="serve")

    def made(settings: SynthesisSettings) -> Timing:
        generate_policy(images, MEAN_LOAD_QPS, settings)
        return several(lambda: generate_policy(images, MEAN_LOAD_QPS, settings), 9)

    generate_policy(images, MEAN_LOAD_QPS, usual)
    policy, timing = repeated(
        benchmark, lambda: generate_policy(images, MEAN_LOAD_QPS, usual), rounds=9)
    assert policy.headroom is not None
    optimum = made(pure)
    ledger.time("planned as profiled, from the profile", optimum, TARGET_S)
    ledger.ratio(optimum, made(serve), "the same with late=serve")
    ledger.time("headroom and intervals on top", timing.minus(optimum), 0.1)
    ledger.ratio(timing, optimum, "planned as profiled")


def test_memory_of_one_policy(benchmark, ledger, profile_file):
    fresh = solved_freshly(
        benchmark, profile_file, 9, SLO_MS, "fixed:100", MEAN_LOAD_QPS, rounds=3
    )
    assert (fresh.work.models, fresh.work.states) == (9, 32 * 101)
    ledger.memory("process that makes one policy, peak", fresh.peak_mb, TARGET_MB)
