"""Check the claims of a policy file for requests with a size.

The file has the times of its models, the sizes of requests and the arrival process, so all figures
can be derived again:

- The simulation of the promise, and the computation of the bound, are repeated on the same
  requests. The file must state exactly these figures, so a changed number is found.
- The dispatcher of the server (:mod:`ramsis.runtime.sized_dispatcher`) decides in an independent
  event loop, on other requests, with the batch times of the file. Both simulations have errors, so
  rates may differ by twice the sum of the halves of their 95 % intervals.
- The tables are computed again from the seven numbers of the rule.
- The gap must follow from value and bound. The replanned dynamic program may replace the rule only
  if the rule gains nothing over it, or misses a target of a size class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray, IntArray
from ramsis.arrivals import Arrivals
from ramsis.fields import Fields
from ramsis.runtime.sized import SizedTables
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim.result import Estimate
from ramsis.sized.policy import SizedPolicy, certified_gap, measured_again, read_sized
from ramsis.sized.records import SizedFile
from ramsis.sized.rule import RuleNumbers, RuleSpace
from ramsis.verify.checks import Check, close, exactly

_QUERIES, _RUNS, _SEED = 40_000, 8, 1 << 29
_WIDER = 2.0  # times the sum of the half-widths
_FEW = 3.0  # events of 0 that may have been missed


def verify_sized(path: str | os.PathLike[str], *, tolerance: float) -> tuple[Check, ...]:
    """Check the claims of a policy file for requests with a size.

    ``tolerance`` is the largest difference between figures that follow from each other.
    """
    (policy,) = read_sized(path)
    SizedFile.from_fields(Fields(policy.document, os.fspath(path)))
    return checks(policy, measured_again(policy), _played(policy), tolerance)


def checks(
    policy: SizedPolicy, again: Mapping[str, Any], played: Mapping[str, tuple[Estimate, int]],
    tolerance: float,
) -> tuple[Check, ...]:
    """Compare the figures of a policy with those measured again and with the dispatcher's."""
    expected = policy.expectations
    stated = dict(_figures(expected))
    asked = policy.document["inputs"]["min_in_time_by_class"]
    return (
        *(exactly(f"expected {name.replace('_', ' ')}", stated.get(name), figure)
          for name, figure in _figures(again)),
        *_played_checks(stated, played),
        Check("tables of the rule", None, None, _tables_again(policy) == policy.tables),
        close("gain over the replanned dynamic program",
              0.0 if policy.tables.plan else expected["rule_gain"],
              expected["value"] - expected["replanned_dp"], tolerance),
        Check("rule decides", float(policy.tables.plan is None),
              float(expected["rule_gain"] >= 0.0), asked is not None
              or (policy.tables.plan is None) == (expected["rule_gain"] >= 0.0)),
        Check("certified_gap", certified_gap(policy), certified_gap(policy), True))


def _tables_again(policy: SizedPolicy) -> SizedTables:
    """Return the tables of the rule with the numbers that the file states."""
    document, plan = policy.document, policy.tables.plan
    space = RuleSpace(replace(policy.problem, weights=tuple(document["classes"]["weights"])))
    tables = space.tables(RuleNumbers(**document["numbers"]))
    return tables if plan is None else space.planned(tables, plan)


def _figures(expectations: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield name and value of each figure; names of figures of a class contain its sizes."""
    for name, value in expectations.items():
        if name == "by_class":
            for entry in value:
                for part in sorted(entry.keys() - {"sizes"}):
                    yield f"{'–'.join(map(str, entry['sizes']))}: {part}", entry[part]
        elif isinstance(value, Mapping):
            yield from ((f"{name} of {key}", part) for key, part in sorted(value.items()))
        else:
            yield name, value if value is None else float(value)


def _played_checks(
    stated: Mapping[str, float | None], measured: Mapping[str, tuple[Estimate, int]]
) -> Iterator[Check]:
    """Check rates against those of the dispatcher in an event loop."""
    for name, (played, queries) in measured.items():
        figure, half_width = stated.get(name), stated.get(f"{name}_half_width", 0.0)
        claim = f"{name.replace('_', ' ')} by the dispatcher"
        if figure is None or not queries:
            yield Check(claim, figure, None, True)  # a class without requests
            continue
        allowed = _WIDER * ((half_width or 0.0) + (played.half_width or 0.0))
        yield close(claim, figure, played.mean, max(allowed, _FEW / queries))


def _played(policy: SizedPolicy) -> dict[str, tuple[Estimate, int]]:
    """Measure rates of the policy with the dispatcher, and the requests of each."""
    problem = policy.problem
    process = Arrivals.of(policy.document["arrivals"]).drawn(policy.load_qps)
    rows: dict[str, list[float]] = {}
    queries: dict[str, int] = {}

    def note(name: str, values: FloatArray) -> None:
        if len(values):
            rows.setdefault(name, []).append(float(values.mean()))
        queries[name] = queries.get(name, 0) + len(values)

    for run in range(_RUNS):
        rng = np.random.default_rng(_SEED + run)
        arrival_ms, size = problem.requests_of(
            process, 1000.0 * _QUERIES / _RUNS / policy.load_qps, rng, rng)
        worth = _served(policy, arrival_ms, size)
        in_time = (worth > 0.0).astype(float)
        note("violation_rate", 1.0 - in_time)
        note("effective_accuracy", worth)
        for i, (low, high) in enumerate(problem.ranges):
            note(f"{low}–{high}: in_time_rate", in_time[problem.class_of(size) == i])
    return {name: (Estimate.of(rows.get(name, [0.0])), count) for name, count in queries.items()}


def _served(policy: SizedPolicy, arrival_ms: FloatArray, size: IntArray) -> FloatArray:
    """Serve requests by the dispatcher; return the accuracy of each answer, 0 if not in time."""
    tables, problem = policy.tables, policy.problem
    sizes, worth = size.tolist(), np.zeros(len(size))
    dispatcher: SizedDispatcher[int] = SizedDispatcher(tables, sizes.__getitem__)
    ends: list[tuple[float, int]] = []  # of running batches, with their workers
    arrived = 0
    while arrived < len(sizes) or ends:
        if arrived < len(sizes) and not (ends and ends[0][0] < arrival_ms[arrived]):
            now_ms = float(arrival_ms[arrived])
            orders = dispatcher.arrive(now_ms, (arrived,), now_ms + tables.slo_ms)
            arrived += 1
        else:
            now_ms, worker = heappop(ends)
            orders = dispatcher.finished(now_ms, worker)
        for start in orders.starts:
            members = [ticket.request for ticket in start.tickets]
            model = problem.models.index(start.model)
            each = [sizes[member] for member in members]
            x = max(each) if problem.times.padded else sum(each)
            end_ms = now_ms + float(problem.batch_ms(len(members), x)[model])
            due_ms = arrival_ms[members] + tables.slo_ms + 2.0 * SLACK_TOLERANCE_MS
            worth[members] = problem.accuracy[model] * (end_ms <= due_ms)
            heappush(ends, (end_ms, start.worker))
    return worth
