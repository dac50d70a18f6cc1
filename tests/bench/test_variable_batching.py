"""One policy with variable batching: the paper's took 3015 s, with 60 models more than a day."""

from dataclasses import replace

import pytest

from ramsis.arrivals import Poisson
from ramsis.mdp import value_iteration
from ramsis.profiles import LatencyTable
from ramsis.worker.explicit import build_explicit
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve import WorkerSolution, solve_worker
from ramsis.worker.structure.variable_batching import build_variable
from tests.bench.cases import LOADS_QPS, MAX_QUEUE, SLO_MS, WORKERS, along_the_front
from tests.bench.timing import repeated

TARGET_S = 2.0
SIXTY_LOAD_QPS = LOADS_QPS[1]


def problem_of(table: LatencyTable, load_qps: float) -> WorkerProblem:
    return WorkerProblem.create(
        table, slo_ms=SLO_MS, workers=WORKERS, arrivals=Poisson(load_qps), max_queue=MAX_QUEUE,
        batching="variable",
    )


def solve(table: LatencyTable, load_qps: float) -> WorkerSolution:
    """From the latencies to the policy, the problem made anew."""
    return solve_worker(problem_of(table, load_qps))


@pytest.mark.parametrize("load_qps", LOADS_QPS)
def test_variable_batching(benchmark, ledger, table, load_qps):
    solved, timing = repeated(benchmark, lambda: solve(table, load_qps), rounds=5, warmup=1)
    problem = problem_of(table, load_qps)
    maximal = solve_worker(replace(problem, batching=type(problem.batching).MAXIMAL))
    assert solved.certificate.converged
    assert solved.policy.shape == (MAX_QUEUE, 101)
    assert solved.gain >= maximal.gain - 1e-9
    assert len(build_variable(problem).likely) >= 200
    if load_qps == LOADS_QPS[1]:  # writing every row out takes seconds
        optimum = value_iteration(build_explicit(problem).mdp).gain
        assert solved.gain == pytest.approx(optimum, abs=1e-4)
    ledger.time(f"variable batching: 9 models, {load_qps:g} QPS", timing, TARGET_S)


def test_sixty_models_with_variable_batching(benchmark, ledger, table):
    sixty = along_the_front(table, 60)
    solved, timing = repeated(benchmark, lambda: solve(sixty, SIXTY_LOAD_QPS), rounds=3)
    assert len(solved.problem.latency.models) == 60
    assert solved.certificate.converged
    assert solved.gain >= solve(table, SIXTY_LOAD_QPS).gain - 1e-9
    ledger.time("variable batching: 60 models, D = 100, SLO 150 ms", timing, 10.0)
