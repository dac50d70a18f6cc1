"""The request log of a simulated run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ramsis.arrays import IntArray
from ramsis.audit.request_log import Request
from ramsis.sim.run import DROPPED, Run


def requests_of_run(run: Run, size: IntArray | None = None) -> Iterator[Request]:
    """Yield the requests of a run by rising arrival, with ``correct`` unknown.

    A request that is never answered counts as dropped, without a time. ``size`` is that of each
    request, where they have one.
    """
    sizes = [None] * run.requests if size is None else size.tolist()
    models, in_time = run.models, run.in_time
    left_s = np.full(run.requests, np.nan)
    left_s[run.drop_request] = run.drop_ms / 1000.0
    slo_ms = np.broadcast_to(run.slo_ms, run.requests)
    for query, batch in enumerate(run.batch_of.tolist()):
        arrival_s, deadline_ms = float(run.arrival_ms[query]) / 1000.0, float(slo_ms[query])
        if batch < 0:
            gone_s = float(left_s[query]) if batch == DROPPED else None
            yield Request(arrival_s, None, gone_s, deadline_ms, "dropped", size=sizes[query])
            continue
        count = int(run.size[batch])
        yield Request(arrival_s, float(run.start_ms[batch]) / 1000.0,
                      float(run.finish_ms[batch]) / 1000.0, deadline_ms,
                      "served" if in_time[query] else "late", models[run.model[batch]], count,
                      count, int(run.worker[batch]), size=sizes[query])
