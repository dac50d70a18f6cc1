"""Promises of central queues, of shortest queues and of many violations: rates that are measured.

The model of a central queue (:mod:`ramsis.central.problem`) is made to tell better decisions from
worse ones. The rates of the policy are 0.001 off with few workers, where ends of batches depend on
each other, and up to 0.02 near the capacity, and rates of one in ten thousand it does not know at
all. That of a shortest queue (:mod:`ramsis.worker.shortest_queue`) takes the numbers of queries at
the workers to be independent: its rates are up to 0.01 off with many workers, more where a few of
them take long batches in turn, and useless where workers may collapse. That of a worker with a
queue of its own (:mod:`ramsis.worker.problem`) rounds slack down and takes what is beyond the
table for late: of ten violations that it counts there may be seven. It counts too many, so a
promise of less than 0.002 violations is 0.002 too low at most, and stands; one of more is measured
where what is late is dropped. Under the other rules workers may collapse sooner or later, which no
simulation from idle workers on can rule out. So the table is replayed in simulation: the accuracy,
the violation rate and the effective accuracy of the promise are those measured, and the file holds
their intervals. What else is promised (batches, queues, shares of the models) is the model's.
Where the interval of the effective accuracy is wide, as where many workers swing together near the
capacity, runs are longer.

The seeds are other ones than those by which policies are chosen, so that the choice does not
flatter the promise; nor does a measurement that passes the upper bound by chance count for more
than the bound. Where workers are so many, or the SLO so long, that a run until they have settled
takes millions of queries, the promise is that of the model.

What is measured is checked by measuring it again: with the same seeds, which must give the same;
with others, whose intervals must overlap those stated; and, where few queries are enough to
settle, the compiled loop is checked against the plain engine.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from ramsis.analysis.measured import as_measured
from ramsis.policy import Policy
from ramsis.sim.experiment import EngineName
from ramsis.sim.tables import KERNELS
from ramsis.synthesis.checks import Check, close
from ramsis.synthesis.simulated import SETTLES, Simulated, simulated

__all__ = ["replay_checks", "replayed", "settles"]

_QUERIES, _RUNS, _SEED = 200_000, 8, 3 << 20
_LASTS = 12.0  # a run at least, in SLOs
_WIDE, _LONGER = 0.001, 8  # half of an interval beyond which runs are so much longer
_MANY, _FEWER_RUNS = 1e4, 4  # queries within the SLO with which runs are fewer
_OTHER_SEED = 1 << 30
_MOST_QUERIES = 2e6  # of a run until the workers have settled; of longer runs in all
_PLAIN, _MOST_PLAIN = 20_000, 2e4  # queries of the plain engine, and until they have settled
_ENGINES: tuple[EngineName, EngineName] = ("plain", "compiled")
_SAME = 1e-6  # of rates measured twice with the same seeds
_ROUNDING = 1e-4  # of rates measured with other seeds, besides the intervals


def settles(load_qps: float, slo_ms: float, most: float = _MOST_QUERIES) -> bool:
    """Whether workers have settled after so many simulated queries."""
    return load_qps / 1000.0 * slo_ms * SETTLES <= most


def replayed(policy: Policy) -> Policy:
    """The policy, promising what its table does in simulation; as it is where that takes long."""
    if not settles(policy.load_qps, policy.slo_ms):
        return policy
    within_slo = policy.load_qps / 1000.0 * policy.slo_ms
    runs = _RUNS if within_slo <= _MANY else _FEWER_RUNS
    queries = max(_QUERIES, int(_LASTS * runs * within_slo))
    found = _measured(policy, queries, runs, _SEED)
    if found.effective_half_width > _WIDE and queries < _MOST_QUERIES:
        found = _measured(policy, min(_LONGER * queries, int(_MOST_QUERIES)), runs, _SEED)
    return replace(policy, replay=found,
                   expectations=as_measured(policy.expectations, found, policy.load_qps,
                                            within_bound=True))


def replay_checks(policy: Policy) -> tuple[Check, ...]:
    """The claims of a policy that has a ``replay``."""
    stated, expected = policy.replay, policy.expectations
    assert stated is not None
    again = _measured(policy, stated.queries, stated.runs, stated.seed)
    other = _measured(policy, stated.queries, stated.runs, _OTHER_SEED)
    same = as_measured(expected, again, policy.load_qps, within_bound=True)
    return (
        close("expected accuracy", expected.accuracy, same.accuracy, _SAME),
        close("expected violation rate", expected.violation_rate, same.violation_rate, _SAME),
        close("expected effective accuracy", expected.effective_accuracy,
              same.effective_accuracy, _SAME),
        Check("overloaded", float(expected.overloaded), float(same.overloaded),
              expected.overloaded == same.overloaded),
        *(close(f"replay: {name.replace('_', ' ')}", float(getattr(stated, name)), float(value),
                _SAME) for name, value in asdict(again).items()),
        close("violation rate in simulation, other seeds", expected.violation_rate,
              other.violation_rate,
              again.violation_half_width + other.violation_half_width + _ROUNDING),
        close("effective accuracy in simulation, other seeds", expected.effective_accuracy,
              other.effective_accuracy,
              again.effective_half_width + other.effective_half_width + _ROUNDING),
        *_plain_checks(policy),
    )


def _plain_checks(policy: Policy) -> list[Check]:
    """The plain engine, lookup by lookup, against the compiled loop; where that is short."""
    known = policy.dispatch in KERNELS
    if not known or not settles(policy.load_qps, policy.slo_ms, _MOST_PLAIN):
        return []
    plain, compiled = (
        simulated(policy, queries=_PLAIN, runs=2, seed=_OTHER_SEED, engine=engine)
        for engine in _ENGINES)
    return [close(f"{name.replace('_', ' ')} in the plain engine", getattr(compiled, name),
                  getattr(plain, name), _SAME)
            for name in ("violation_rate", "effective_accuracy")]


def _measured(policy: Policy, queries: int, runs: int, seed: int) -> Simulated:
    return simulated(policy, queries=queries, runs=runs, seed=seed)
