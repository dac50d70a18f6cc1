"""The worker problems that are timed; as a program, one of them solved in a fresh process.

``python tests/bench/cases.py PROFILE MODELS SLO_MS GRID LOAD_QPS`` prints the work done, the time
from profile to promise, and the peak of the process's memory, as one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ramsis import profiles
from ramsis.analysis import analyse_worker
from ramsis.arrivals import Poisson
from ramsis.policy import Expectations
from ramsis.profiles import BatchProfile, LatencyTable, ModelProfile, ProfileSet
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve.policy_iteration import NodeSolution, solve_on_nodes
from ramsis.worker.structure import StructuredMDP, build_structured
from ramsis.worker.structure.evaluation import state_frequency
from tests.bench.timing import timed

SLO_MS = 150.0
WORKERS = 60
MAX_QUEUE = 32
LOADS_QPS = (800.0, 2000.0, 3200.0)
IMAGE_MODELS = (
    "shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b2",
    "efficientnet_b3", "efficientnet_b4", "efficientnet_v2_s", "efficientnet_v2_m",
    "efficientnet_v2_l",
)


def stand_in_profile() -> ProfileSet:
    """Nine made-up models, for a machine without the measured ones: as large a problem."""
    models = []
    for i in range(9):
        first_ms = 22.0 * 1.3**i
        batches = tuple(BatchProfile(b, p95_ms=first_ms * (0.3 + 0.7 * b)) for b in range(1, 34))
        models.append(ModelProfile(f"model-{i}", 0.86 - 0.28 * (1 - i / 8) ** 2, batches))
    return ProfileSet("stand-in", tuple(models))


def latency_table(profile: Path) -> LatencyTable:
    """The Pareto front of a profile file, at the 95th percentile."""
    return profiles.prune(profiles.load(str(profile)).latency_table("p95", MAX_QUEUE + 1))


def along_the_front(table: LatencyTable, models: int) -> LatencyTable:
    """That many models at equal steps of accuracy on the front, latencies interpolated."""
    accuracy = np.linspace(table.accuracy.min(), table.accuracy.max(), models)
    return profiles.between_models(table, accuracy)


@dataclass(frozen=True)
class Solved:
    """From build to promise."""

    mdp: StructuredMDP
    solution: NodeSolution
    promise: Expectations


def solve(
    table: LatencyTable, load_qps: float, *, slo_ms: float = SLO_MS, grid: str = "fixed:100"
) -> Solved:
    """Build, solve and analyse the problem of a worker in a fleet of 60, queues up to 32."""
    problem = WorkerProblem.create(
        table, slo_ms=slo_ms, workers=WORKERS, arrivals=Poisson(load_qps), grid=grid,
        max_queue=MAX_QUEUE,
    )
    mdp = build_structured(problem)
    solution = solve_on_nodes(mdp)
    visits, excess = state_frequency(mdp, solution.evaluation)
    analysis = analyse_worker(problem, solution.policy, visits, excess)
    return Solved(mdp, solution, analysis.expectations())


@dataclass(frozen=True)
class Work:
    """How much was done, so that speed cannot come from doing less.

    Attributes
    ----------
    models, states, latencies, nodes : int
        Size of the problem; states (n, T_j) with n up to N.
    rounds : int
        Rounds of policy iteration.
    gain, gap : float
        The policy's gain, and the certificate's upper bound less this.
    effective_accuracy : float
    """

    models: int
    states: int
    latencies: int
    nodes: int
    rounds: int
    gain: float
    gap: float
    effective_accuracy: float

    @classmethod
    def of(cls, solved: Solved) -> Work:
        """The work behind a solution."""
        problem, solution = solved.mdp.problem, solved.solution
        assert solution.certificate.converged
        return cls(
            models=len(problem.latency.models),
            states=solution.policy.size,
            latencies=len(solved.mdp.passages),
            nodes=len(solved.mdp.nodes),
            rounds=solution.certificate.iterations,
            gain=solution.evaluation.gain,
            gap=solution.certificate.upper_bound - solution.evaluation.gain,
            effective_accuracy=solved.promise.effective_accuracy,
        )


def peak_mb() -> float:
    """Largest resident memory of this process so far, in units of 10^6 bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would count what the parent held before this program began
        text = status.read_text(encoding="ascii")
        return float(text.split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def report(done: Callable[[], Any]) -> None:
    """Print a call's work, its times and the peak of memory after it, as one JSON object."""
    work, timing = timed(done)
    print(json.dumps({"work": asdict(work), "timing": asdict(timing), "peak_mb": peak_mb()}))


def _main(profile: str, models: str, slo_ms: str, grid: str, load_qps: str) -> None:
    table = latency_table(Path(profile))
    if int(models) != len(table.models):
        table = along_the_front(table, int(models))
    report(lambda: Work.of(solve(table, float(load_qps), slo_ms=float(slo_ms), grid=grid)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
