"""Decision table: the part of a policy that a lookup reads, for every dispatch rule.

This module defines the names and constants of the file format; the policy package, which reads and
writes whole files, imports them. :mod:`ramsis.runtime.table_reader` reads a table from a document
and checks it, so that a lookup never fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ramsis.errors import InvalidValueError
from ramsis.reprs import brief

POLICY_FORMAT = "ramsis.policy/1"
MAX_WORKERS = 1_000_000
"""Most workers of a type in files."""
AXES = ("idle", "queued", "slack_ms")
"""Dimensions of the state: idle workers of the station, requests in its queue, and the slack of
the earliest deadline in ms."""
SLACK_TOLERANCE_MS = 1e-6
"""Tolerance of slack: a slack below a bin's low edge by at most this is counted in the bin.

Slack is a difference of sums of times. Through rounding, the slack of a request that has just
arrived may be below the SLO, so an action that takes the whole SLO would never be chosen.
Synthesis and simulation compare slack and times with the same tolerance."""
WAIT_CODE, DROP_CODE = -1, -2
"""Entries of a table that are not an action's index: wait, and drop the earliest request."""
AS_LAST_CODE = -3
"""Entry for queues longer than the table, if each worker has a queue: use the last level."""
BATCHINGS = ("maximal", "variable")
"""``maximal``: a batch is the whole queue; ``variable``: any part of it."""
LATE_RULES = ("serve", "drop")
"""Rules for requests that no action can answer in time: the fastest model serves all of them, or
they may be dropped. A table may drop requests only with ``drop``."""


class DecisionTable(NamedTuple):
    """Decision table of a policy, checked for lookups.

    Attributes
    ----------
    models
        Names, fastest first.
    slo_ms, load_qps, workers
        SLO, load and workers (of all queues) that the policy was made for.
    dispatch
        How requests reach the workers, one of :data:`~ramsis.runtime.routing.DISPATCHES`.
    arrivals
        Label of the arrival process, see :func:`arrivals_label`.
    idle
        Levels of idle workers, increasing from 0 to the workers of one queue.
    queued
        Levels of queued requests, increasing, the first ones 0 and 1.
    slack_ms
        Low edges of the slack bins, increasing from 0.
    actions
        Model index and batch of each action.
    rows
        Distinct rows, each a flat list of pairs of a slack bin and the code from this bin on: an
        index into ``actions``, or :data:`WAIT_CODE`, or :data:`DROP_CODE`.
    row_of
        ``row_of[i-1][n-1]``: index of the row for idle level i and queue level n.
    longer_queue
        Code for a queue longer than the last level, not to wait; or :data:`AS_LAST_CODE`.
    run_as
        For each model the batch size to run for batches of 1, 2, …; other batches are not padded.
    slowness
        Service time that the policy assumes, as a multiple of the profiled one.
    """

    models: tuple[str, ...]
    slo_ms: float
    load_qps: float
    workers: int
    dispatch: str
    arrivals: str
    idle: tuple[int, ...]
    queued: tuple[int, ...]
    slack_ms: tuple[float, ...]
    actions: Sequence[Sequence[int]]
    rows: Sequence[Sequence[int]]
    row_of: Sequence[Sequence[int]]
    longer_queue: int
    run_as: Sequence[Sequence[int]] = ()
    slowness: float = 1.0

    def __repr__(self) -> str:
        return brief(self)

    def size_of(self, model: int, batch: int) -> int:
        """Return the batch size to run for a batch on a model."""
        sizes = self.run_as[model] if self.run_as else ()
        return sizes[batch - 1] if batch <= len(sizes) else batch


def arrivals_label(arrivals: Mapping[str, object]) -> str:
    """Return the label of an arrival process with its parameters, a key of policy sets.

    >>> arrivals_label({"process": "poisson"})
    'poisson'
    >>> arrivals_label({"process": "negative-binomial", "dispersion": 4.0})
    'negative-binomial:dispersion=4'
    """
    if "process" not in arrivals:
        raise InvalidValueError("no name of a process", where="arrivals", value=dict(arrivals),
                                allowed="process, and parameters")
    parameters = ",".join(
        f"{key}={_plain(value)}" for key, value in sorted(arrivals.items()) if key != "process"
    )
    return f"{arrivals['process']}:{parameters}" if parameters else str(arrivals["process"])


def _plain(value: object) -> str:
    """Format a parameter of an arrival process; integers lose their decimal point."""
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_plain(item) for item in value) + "]"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value)
