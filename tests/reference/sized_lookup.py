"""A slow and obvious twin of the lookup for requests with a size, and the vectors made with it.

It shares no code with the runtime: it follows the steps of ``docs/policy-file.md`` word by word.
``python -m tests.reference.sized_lookup`` prints the vectors' file.
"""

import math
from random import Random
from typing import Any

from tests.reference.lookup import lines

Case = dict[str, Any]

TOLERANCE_MS = 1e-6
CASES = 320
"""Decisions of each policy."""


def decide(policy: Case, case: Case) -> Case:
    """Return model, members and dropped requests of a decision."""
    rule, now, slow = policy["rule"], case["now_ms"], case["slowness"]
    bins = rule["bins"]
    bin_us = math.ceil(1000.0 * policy["slo_ms"] / bins)
    free = math.inf if case["free_ms"] is None else case["free_ms"] / slow
    models = range(len(policy["models"]))
    requests = [(n, size, due) for n, (size, due) in enumerate(case["waiting"])]

    def alone_ms(size: int) -> float:
        return min(time_ms(rule, m, 1, size) for m in models)

    def late(due: float, time: float) -> bool:
        return bool(due - now + TOLERANCE_MS < time * slow)

    dropped = [n for n, size, due in requests if late(due, alone_ms(size))]
    requests = [request for request in requests if request[0] not in dropped]
    if not requests:
        return {"model": None, "members": [], "dropped": dropped}

    def class_of(size: int) -> int:
        return next(c for c, edge in enumerate(rule["edges"]) if size <= edge)

    def cell_of(size: int, due: float) -> tuple[int, int]:
        slack_us = int(1000.0 * due) - int(1000.0 * now)
        return class_of(size), min(slack_us // int(bin_us * slow + 0.5), bins - 1)

    def middle_ms(k: int) -> float:
        return (k + 0.5) * bin_us / 1000.0

    cells = {n: cell_of(size, due) for n, size, due in requests}
    work = sum(rule["work_us"][c] for c, _ in cells.values())
    level = min(work // rule["level_us"], len(rule["price"]) - 1)
    price = rule["price"][level]
    aging = sum(rule["aging"][level][c][k] for c, k in cells.values()) * 1e-6 / policy["slo_ms"]
    packed = rule["law"] == "packed"

    def gain(m: int, c: int, k: int) -> int:
        return int(rule["reward"][m][c] - rule["values"][level][c][k])

    def place(m: int, cell: tuple[int, int]) -> tuple[float, int, int]:
        c, k = cell
        return -gain(m, c, k) / (rule["mean_size"][c] if packed else 1.0), c, k

    best: tuple[float, int, list[int], float] | None = None
    for m in models:
        line = sorted(cells, key=lambda n: (*place(m, cells[n]), n))
        for last in range(len(rule["edges"])):
            sizes = [size for _, size, _ in requests if class_of(size) == last]
            if (not packed and not sizes) or (packed and last < len(rule["edges"]) - 1):
                continue
            longest = rule["sizes"][0] if packed else max(sizes)
            times = [time_ms(rule, m, b, longest) for b in range(1, counts(rule) + 1)]
            for worth in (price + aging,) if free == math.inf else (price + aging, price):
                cut, limit = times[0], counts(rule)
                for _ in range(2):
                    able = [n for n in line if cells[n][0] <= last
                            and middle_ms(cells[n][1]) >= cut][:limit]
                    taken = (by_total(rule, m, able, cells, gain, worth) if packed
                             else by_slope(times, able, [gain(m, *cells[n]) for n in able], worth))
                    if not taken:
                        break
                    total = sum(rule["mean_size"][cells[n][0]] for n in taken)
                    end = time_ms(rule, m, len(taken), total) if packed else times[len(taken) - 1]
                    if min(middle_ms(cells[n][1]) for n in taken) >= end:
                        value = sum(gain(m, *cells[n]) for n in taken) * 1e-6 - (
                            price * end + aging * min(end, free))
                        if best is None or value > best[0]:
                            best = value, m, taken, end
                        break
                    cut, limit = end, len(taken)
    model, members = -1, list[int]()
    if best is not None:
        _, model, taken, end = best
        due_of = {n: due for n, _, due in requests}
        members = [n for n in sorted(taken) if not late(due_of[n], end)]
        if packed and members:
            total = sum(case["waiting"][n][0] for n in members)
            end = time_ms(rule, model, len(members), total)
            members = [n for n in members if not late(due_of[n], end)]
    if not members:
        n, size, _ = requests[0]
        model = min(models, key=lambda m: time_ms(rule, m, 1, size))
        members = [n]
    return {"model": policy["models"][model]["name"], "members": members, "dropped": dropped}


def counts(rule: Case) -> int:
    """Return the largest count of a batch."""
    return len(rule["times_ms"][0][0])


def time_ms(rule: Case, m: int, count: int, size: float) -> float:
    """Return the time of a batch by its longest or total size, infinite beyond the table."""
    sizes, times = rule["sizes"], [row[count - 1] for row in rule["times_ms"][m]]
    if size > sizes[-1]:
        return math.inf
    high = next(i for i, at in enumerate(sizes) if at >= size)
    if rule["law"] == "padded" or high == 0:
        return float(times[high])
    part = (size - sizes[high - 1]) / (sizes[high] - sizes[high - 1])
    return float(times[high - 1] + (times[high] - times[high - 1]) * part)


def by_slope(times: list[float], able: list[int], gains: list[int], worth: float) -> list[int]:
    """Return the first members, until one does not pay for the time that it adds."""
    # Slopes behind each count of the lower convex envelope: the least mean rise to any later one.
    count = min(1, len(able))
    while count < len(able):
        corners = [1]
        while corners[-1] < len(times):
            at = corners[-1]
            corners.append(min(range(at + 1, len(times) + 1), key=lambda b: (
                (times[b - 1] - times[at - 1]) / (b - at), -b)))
        low = max(corner for corner in corners if corner <= count)
        high = min(corner for corner in corners if corner > count)
        if (times[high - 1] - times[low - 1]) / (high - low) * worth > gains[count] * 1e-6:
            break
        count += 1
    return able[:count]


def by_total(
    rule: Case, m: int, able: list[int], cells: dict[int, tuple[int, int]], gain: Any,
    worth: float,
) -> list[int]:
    """Return the first members up to the end of a cell, for the most gain less worth * time."""
    best, chosen, total, gains = -math.inf, 0, 0.0, 0
    for count, n in enumerate(able, 1):
        total += rule["mean_size"][cells[n][0]]
        gains += gain(m, *cells[n])
        if count < len(able) and cells[able[count]] == cells[n]:
            continue
        value = gains * 1e-6 - worth * time_ms(rule, m, count, total)
        if value > best:
            best, chosen = value, count
    return able[:chosen]


def policy(rng: Random, law: str, models: int, workers: int) -> Case:
    """Return a small policy document at random, whose numbers are short."""
    edges, bins, levels, most = [8, 20, 48, 100], 6, 3, 6
    slo_ms = 80.0
    sizes = edges if law == "padded" else [8, 60, 200, 600]
    names = ["small", "large"][:models]
    times = [[[round(5.0 + 4.0 * m + (b * size if law == "padded" else size + b) * (m + 1) / 16, 2)
               for b in range(1, most + 1)] for size in sizes] for m in range(models)]
    values = [[sorted(rng.randrange(0, 500_000, 1000) for _ in range(bins)) for _ in edges]
              for _ in range(levels)]
    rule = {
        "law": law, "edges": edges, "mean_size": [5.5, 13.25, 33.0, 71.5],
        "work_us": [1200, 2500, 5200, 9000], "level_us": 40_000, "bins": bins,
        "reward": [[rng.randrange(500_000, 1_000_000, 1000) for _ in edges]
                   for _ in range(models)],
        "values": values,
        "aging": [[sorted((rng.randrange(0, 900_000, 1000) for _ in range(bins)), reverse=True)
                   for _ in edges] for _ in range(levels)],
        "price": [0.005, 0.0125, 0.03], "sizes": sizes, "times_ms": times}
    return {"format": "ramsis.sized-policy/1", "slo_ms": slo_ms, "workers": workers,
            "models": [{"name": name, "accuracy": 0.9} for name in names], "rule": rule}


def cases(policy: Case, rng: Random) -> list[Case]:
    """Return decisions of queues of 0 to 40 requests, hopeless ones among them."""
    result = []
    for number in range(CASES):
        now = round(rng.uniform(0.0, 1e6), 3)
        waiting = sorted(([int(min(100.0, rng.lognormvariate(2.3, 1.2)) + 1), round(
            now + rng.uniform(-2.0, policy["slo_ms"]), 3)] for _ in range(rng.randrange(
                0, 6 if number % 4 else 41))), key=lambda request: request[1])
        waiting = [[min(size, 100), due] for size, due in waiting]
        free = rng.choice([None, 0.0, round(rng.uniform(0.0, 30.0), 2)]) \
            if policy["workers"] > 1 else None
        case = {"now_ms": now, "free_ms": free,
                "slowness": 1.0 if rng.random() < 0.7 else round(rng.uniform(1.0, 3.0), 3),
                "waiting": waiting}
        result.append({**case, **decide(policy, case)})
    return result


def vectors() -> Case:
    """Return all vectors: decisions of policies of both laws, with one and two models."""
    rng = Random(54)
    policies = [policy(rng, law, models, models) for law in ("padded", "packed")
                for models in (1, 2)]
    return {"format": "ramsis.sized-vectors/1",
            "decisions": [{"policy": one, "cases": cases(one, rng)} for one in policies]}


def vectors_text() -> str:
    """Return the text of the vectors' file: one case to a line."""
    return lines(vectors()) + "\n"


if __name__ == "__main__":
    print(vectors_text(), end="")
