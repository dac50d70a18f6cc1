"""Sixty models at equal steps of accuracy along the front of the nine."""


import pytest

from ramsis.mdp import value_iteration
from ramsis.worker.explicit import build_explicit
from tests.bench.cases import SLO_MS, along_the_front, solve
from tests.bench.fresh import solved_freshly
from tests.bench.references import Explicit, quantecon

LOAD_QPS = 2000.0


@pytest.fixture(scope="module")
def explicit(table):
    """The rows of the sixty models at D = 100, SLO 150 ms."""
    build_explicit(solve(table, LOAD_QPS).mdp.problem)  # compiled now
    return Explicit.of(solve(along_the_front(table, 60), LOAD_QPS).mdp.problem)


@pytest.fixture(scope="module")
def reference(explicit):
    """QuantEcon on these rows."""
    return quantecon(explicit)


def test_sixty_models(benchmark, ledger, profile_file, explicit, reference):
    fresh = solved_freshly(benchmark, profile_file, 60, SLO_MS, "fixed:100", LOAD_QPS, rounds=5)
    work = fresh.work
    assert (work.models, work.states) == (60, 32 * 101)
    assert work.latencies >= 250
    assert work.gap < 1e-6
    assert work.gain == pytest.approx(value_iteration(explicit.rows.mdp).gain, abs=1e-4)
    ledger.time("60 models, D = 100, SLO 150 ms", fresh.timing, 0.5)
    ledger.ratio(fresh.timing, reference.total, "explicit rows and QuantEcon")


def test_sixty_models_on_their_own_grid(benchmark, ledger, profile_file, reference):
    fresh = solved_freshly(benchmark, profile_file, 60, 500.0, "model", LOAD_QPS, rounds=3)
    work = fresh.work
    assert work.models == 60
    assert work.latencies >= 900
    assert work.states >= 32 * work.latencies  # the slack values are 0, the SLO and latencies
    assert work.rounds >= 3
    assert work.gap < 1e-6
    slots = work.states // 32 - 1
    ledger.time(f"60 models, model-based grid ({slots} slacks), SLO 500 ms", fresh.timing, 15.0)
    ledger.ratio(fresh.timing, reference.total,
                 "explicit rows and QuantEcon at D = 100, SLO 150 ms")
    ledger.memory("its process, peak", fresh.peak_mb, 2000.0)
