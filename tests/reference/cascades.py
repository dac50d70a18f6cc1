"""Cascades by brute force: the fluid program column by column, and a plain simulation.

A column is a first model and batch, a second model, and for each bin of the first one's confidence
either no second opinion or a batch of the second model, which has to fit into the SLO.
"""

import heapq
import random
from itertools import product
from typing import NamedTuple

from scipy.optimize import linprog
from scipy.stats import poisson


class Pair(NamedTuple):
    """First and second model, and by bin the share of the requests and what is added."""

    first: int
    second: int
    share: list[float]
    increment: list[float]


def best_mix(
    accuracy: list[float], latency_ms: list[list[float]], pairs: list[Pair], *, slo_ms: float,
    workers: int, load_qps: float, price: float = 0.0, together: bool = False,
) -> float:
    """The most effective accuracy − price × violation rate over mixes of all columns.

    ``together`` lets each bin take the second model of any pair with the same first one.
    """
    columns = []
    for first, row in enumerate(latency_ms):
        for b, length in enumerate(row, start=1):
            if length > slo_ms:
                continue
            columns.append((accuracy[first], length / b))
            own = [pair for pair in pairs if pair.first == first]
            for group in ([own] if together and own else [[pair] for pair in own]):
                options = [[(0.0, 0.0)] + [
                    (share * pair.increment[j], share * again / c) for pair in group
                    for c, again in enumerate(latency_ms[pair.second], start=1)
                    if length + again <= slo_ms] for j, share in enumerate(group[0].share)]
                for chosen in product(*options):
                    columns.append((accuracy[first] + sum(gain for gain, _ in chosen),
                                    length / b + sum(time for _, time in chosen)))
    found = linprog([-worth - price for worth, _ in columns],
                    A_ub=[[time for _, time in columns], [1.0] * len(columns)],
                    b_ub=[1000.0 * workers / load_qps, 1.0], method="highs")
    assert found.success
    return -float(found.fun) - price


def gathered_mix(
    accuracy: list[float], latency_ms: list[list[float]], pairs: list[Pair], *, slo_ms: float,
    workers: int, load_qps: float, price: float = 0.0,
) -> float:
    """The same maximum within all gathering windows, for pairs that are chosen beforehand.

    A column has the first answer's batch and, for each bin, the second opinion's batch or 0.
    """
    load, longest = load_qps / 1000.0, len(latency_ms[0])
    columns: list[tuple[int, int, Pair | None, tuple[int, ...]]] = []
    for m, row in enumerate(latency_ms):
        for b, length in enumerate(row, start=1):
            if length > slo_ms:
                continue
            columns.append((m, b, None, ()))
            for pair in (pair for pair in pairs if pair.first == m):
                fits = [0] + [c for c, again in enumerate(latency_ms[pair.second], start=1)
                              if length + again <= slo_ms]
                columns += [(m, b, pair, chosen)
                            for chosen in product(fits, repeat=len(pair.share))]

    def parts(
        column: tuple[int, int, Pair | None, tuple[int, ...]]
    ) -> list[tuple[int, int, float, float, float]]:
        """Second model, batch, share, first batch's time, and where the bin ends."""
        m, b, pair, chosen = column
        return [] if pair is None else [
            (pair.second, c, pair.share[j], latency_ms[m][b - 1], sum(pair.share[:j + 1]))
            for j, c in enumerate(chosen) if c]

    def most(size: int, expected: float) -> float:
        return float(1.0 - poisson.cdf(size - 2, expected) ** size)

    worth = [accuracy[m] + sum(pair.share[j] * pair.increment[j]
                               for j, c in enumerate(chosen) if c and pair) + price
             for m, _, pair, chosen in columns]
    rows = [[latency_ms[m][b - 1] / b + sum(share * latency_ms[n][c - 1] / c
                                            for n, c, share, _, _ in parts((m, b, pair, chosen)))
             for m, b, pair, chosen in columns], [1.0] * len(columns)]
    limits = [workers / load, 1.0]
    windows = {slo_ms - length for row in latency_ms for length in row if length <= slo_ms}
    began = {latency_ms[pair.first][b] for pair in pairs for b in range(longest)}
    ends = {sum(pair.share[:j + 1]) for pair in pairs for j in range(len(pair.share))}
    for size in range(2, longest + 1):
        for width in windows:
            rows.append([float(b >= size and slo_ms - latency_ms[m][b - 1] <= width)
                         for m, b, _, _ in columns])
            rows.append([sum(share for n, c, share, _, _ in parts(column)
                             if c >= size and slo_ms - latency_ms[n][c - 1] <= width)
                         for column in columns])
            limits += [most(size, load * width)] * 2
            for least, end in product(began, ends):
                span = width - least
                if span < 0:
                    continue

                def counted(n: int, c: int, least: float = least, span: float = span,
                            size: int = size) -> bool:
                    left = slo_ms - least - latency_ms[n][c - 1]
                    return c >= size and 0 <= left <= span + 1e-9

                rows.append([
                    sum(share * (1.0 if first >= least and upto <= end + 1e-12
                                 else -(size - 1) / (c - size + 1))
                        for n, c, share, first, upto in parts(column) if counted(n, c))
                    - ((size - 1) / (column[1] - size + 1) if counted(column[0], column[1])
                       else 0.0) for column in columns])
                limits.append(end * most(size, load * end * span))
    found = linprog([-value for value in worth], A_ub=rows, b_ub=limits, method="highs")
    assert found.success
    return -float(found.fun) - price


class Rule(NamedTuple):
    """A crude rule: the lowest bins of one model go on to another when no fresh request waits."""

    pair: Pair
    unsure: int  # bins
    least: int  # second opinions that are asked together while fresh requests wait


def simulated(
    rule: Rule, accuracy: list[float], latency_ms: list[list[float]], *, slo_ms: float,
    workers: int, load_qps: float, requests: int, seed: int,
) -> float:
    """Mean expected accuracy over all requests of a Poisson stream; late ones count 0.

    Both queues are first come, first served. A batch is as large as the slack of its head allows;
    a second opinion that cannot be in time is not asked for.
    """
    draw, now, arrival = random.Random(seed), 0.0, []
    for _ in range(requests):
        now += draw.expovariate(load_qps / 1000.0)
        arrival.append(now)
    pair = rule.pair
    bins = draw.choices(range(len(pair.share)), pair.share, k=requests)
    first, second = latency_ms[pair.first], latency_ms[pair.second]
    earned = [0.0] * requests
    events: list[tuple[float, int, list[int]]] = [(a, 0, [i]) for i, a in enumerate(arrival)]
    heapq.heapify(events)
    fresh: list[int] = []
    unsure: list[int] = []
    idle = workers
    while events:
        now, kind, batch = heapq.heappop(events)
        if kind == 0:
            fresh += batch
        else:
            idle += 1
        if kind == 1:
            for i in batch:
                earned[i] = accuracy[pair.first]
                if bins[i] < rule.unsure:
                    unsure.append(i)
        elif kind == 2:
            for i in batch:
                earned[i] += pair.increment[bins[i]]
        while idle:
            while unsure and arrival[unsure[0]] + slo_ms < now + second[0]:
                unsure.pop(0)
            while fresh and arrival[fresh[0]] + slo_ms < now + first[0]:
                fresh.pop(0)
            again = bool(unsure) and (not fresh or len(unsure) >= rule.least)
            queue, times = (unsure, second) if again else (fresh, first)
            if not queue:
                break
            size, slack = 1, arrival[queue[0]] + slo_ms - now
            while size < min(len(queue), len(times)) and times[size] <= slack:
                size += 1
            heapq.heappush(events, (now + times[size - 1], 1 + again, queue[:size]))
            del queue[:size]
            idle -= 1
    return sum(earned) / requests
