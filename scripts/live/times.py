"""What live runs show of a machine's times, beside those measured alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from live.fleet import Live
from ramsis.audit.request_log import RequestLog
from ramsis.cluster import ServiceTimes
from ramsis.profiles import ProfileSet

__all__ = ["longer", "slower_ms", "stolen"]

FEW_BATCHES = 50


def stolen(live: Live) -> float:
    """The share of the machine's time that its host took; 0 where that is unknown."""
    return live.stolen or 0.0


def longer(profile: ProfileSet, logs: list[RequestLog]) -> dict[str, float]:
    """How much longer each model's batches take than in the profile, as a ratio of means.

    What a worker waits between two batches counts for the first. Of a model with few batches the
    ratio is that of all batches.
    """
    times = ServiceTimes.of_all(profile, "distribution", 33)
    number = {name: i for i, name in enumerate(times.models)}
    took, alone, count = (np.zeros(len(number)) for _ in range(3))
    pauses = np.concatenate([pauses_ms(log) for log in logs])
    pause_ms = float(np.median(pauses)) if len(pauses) else 0.0
    for log in logs:
        known = np.isfinite(log.start_s) & log.answered
        model = np.array([number[name] for name in log.model[known]])
        size = np.where(log.run_as[known] > 0, log.run_as[known], log.batch[known])
        once = 1.0 / log.batch[known]  # a batch counts once, however many requests it has
        took_ms = 1000.0 * (log.finish_s - log.start_s)[known] + pause_ms
        np.add.at(took, model, once * took_ms)
        np.add.at(alone, model, once * times.mean_ms[model, size - 1])
        np.add.at(count, model, once)
    of_all = took.sum() / alone.sum()
    return {name: float(took[i] / alone[i]) if count[i] >= FEW_BATCHES else float(of_all)
            for name, i in number.items()}


def pauses_ms(log: RequestLog) -> NDArray[np.float64]:
    """From the end of each batch to the start of its worker's next, where that had waited."""
    found = [np.zeros(0)]
    for worker in np.unique(log.worker[log.worker >= 0]):
        mine = np.flatnonzero(log.answered & (log.worker == worker))
        start_s, first = np.unique(log.start_s[mine], return_index=True)
        finish_s, arrival_s = log.finish_s[mine][first], log.arrival_s[mine][first]
        waited = arrival_s[1:] < finish_s[:-1]
        found.append(1000.0 * (start_s[1:] - finish_s[:-1])[waited])
    return np.maximum(np.concatenate(found), 0.0)


def slower_ms(live: Live) -> float:
    """What a request takes for the client beyond the server's time: the 95th percentile."""
    client, server = live.client, live.server
    both = client.answered & server.answered  # both by arrival, so the same requests
    beyond = (client.finish_s - client.arrival_s - server.finish_s + server.arrival_s)[both]
    return max(0.0, float(np.quantile(1000.0 * beyond, 0.95)))
