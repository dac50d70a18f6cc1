"""Lookup of a policy for requests with a size: which of those that wait are the next batch.

Requests lie in cells by size class and slack. The tables have for each level of backlog

- V(cell): the value of a request that still waits after a short time, and its *gain*, reward − V:
  what is won by an answer in time now;
- the value that ages away, summed over all that wait: the cost of waiting in each ms;
- the price of a ms of a worker.

For each model and each longest size class that waits, requests of no larger class are taken in
the order of falling gain, while a member's gain is at least price plus cost of waiting, times the
time that it adds to the batch. Of these batches the one runs with the highest sum of gains less
price × time less cost of waiting × time (up to the moment when another worker is free). Where
nothing is padded, requests are ordered by gain for each unit of size and there is one candidate
for each model. ``docs/policy-file.md`` states the format and each step. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress, groupby, pairwise
from math import inf
from typing import Generic, NamedTuple, TypeVar

from ramsis.errors import NON_NEGATIVE, POSITIVE
from ramsis.runtime.fields import Fields
from ramsis.runtime.table import MAX_WORKERS, SLACK_TOLERANCE_MS

T = TypeVar("T")

SIZED_FORMAT = "ramsis.sized-policy/1"
LAWS = ("padded", "packed")
UNIT = 1e-6
"""Values in the file are whole multiples of this."""
MAX_CELLS = 256  # cells have ranks that fit into a byte
_MAX_SIZE = 65_536
_MAX_VALUE = 10**12
_MAX_BATCH = 4096
_KEYS = ("law", "edges", "mean_size", "work_us", "level_us", "bins", "reward", "values", "aging",
         "price", "sizes", "times_ms")


class SizedTables(NamedTuple):
    """The tables of a policy for requests with a size, by the names of the file."""

    models: Sequence[str]
    slo_ms: float
    workers: int
    law: str
    edges: Sequence[int]  # largest size of each class
    mean_size: Sequence[float]  # of the requests of each class
    work_us: Sequence[int]  # backlog that a request of each class is
    level_us: int  # backlog in each level
    bins: int  # of slack
    reward: Sequence[Sequence[int]]  # of an answer in time, by model and class
    values: Sequence[Sequence[Sequence[int]]]  # of those that wait on, by level, class and bin
    aging: Sequence[Sequence[Sequence[int]]]  # value lost in slo_ms, by level, class and bin
    price: Sequence[float]  # value of a ms of a worker, by level
    sizes: Sequence[int]  # longest or total sizes that times are known at
    times_ms: Sequence[Sequence[Sequence[float]]]  # by model, size and count

    @classmethod
    def from_fields(cls, fields: Fields) -> SizedTables:
        """Read the tables of a policy document; refuse whatever would make a lookup fail."""
        fields.of_format(SIZED_FORMAT)
        models = [model.text("name") for model in fields.children("models")]
        if len({*models}) < len(models):
            raise fields.refusal("models", "model appears twice", value=models)
        rule = fields.child("rule")
        rule.only(_KEYS)
        edges = rule.wholes("edges", 1, _MAX_SIZE)
        _check_rising(rule, "edges", edges)
        classes = len(edges)
        if classes > MAX_CELLS:
            raise rule.refusal("edges", "too many classes", value=classes,
                               allowed=f"at most {MAX_CELLS}")
        bins = rule.whole("bins", 1, MAX_CELLS // classes)
        price = rule.numbers("price", NON_NEGATIVE)
        sizes = rule.wholes("sizes", 1)
        _check_rising(rule, "sizes", sizes)
        law = rule.text("law", LAWS)
        if law == "padded" and sizes[-1] < edges[-1]:
            raise rule.refusal("sizes", "no times of the largest class", value=sizes[-1],
                               allowed=f"{edges[-1]} or more at the end")
        return cls(
            models=models, slo_ms=fields.number("slo_ms", POSITIVE),
            workers=fields.whole("workers", 1, MAX_WORKERS), law=law, edges=edges,
            mean_size=rule.numbers("mean_size", POSITIVE, classes),
            work_us=rule.wholes("work_us", 0, _MAX_VALUE, classes),
            level_us=rule.whole("level_us", 1), bins=bins,
            reward=_grid(rule, "reward", len(models), classes),
            values=_cube(rule, "values", len(price), classes, bins),
            aging=_cube(rule, "aging", len(price), classes, bins), price=price, sizes=sizes,
            times_ms=_times(rule, len(models), len(sizes)))


def _check_rising(fields: Fields, key: str, values: Sequence[int]) -> None:
    for low, high in pairwise(values):
        if high <= low:
            raise fields.refusal(key, "not rising", value=high, allowed=f"above {low}")


def _grid(fields: Fields, key: str, rows: int, columns: int) -> list[list[int]]:
    entries = fields.entries(key, rows)
    return [entries.wholes(name, 0, _MAX_VALUE, columns) for name in entries]


def _cube(fields: Fields, key: str, levels: int, rows: int, columns: int) -> list[list[list[int]]]:
    entries = fields.entries(key, levels)
    return [_grid(entries, name, rows, columns) for name in entries]


def _times(fields: Fields, models: int, sizes: int) -> list[list[list[float]]]:
    """Read times that fall neither with size nor with count."""
    cube, count = [], None
    entries = fields.entries("times_ms", models)
    for name in entries:
        rows = entries.entries(name, sizes)
        grid: list[list[float]] = []
        for row in rows:
            times = rows.numbers(row, POSITIVE, count)
            count = len(times)
            if count > _MAX_BATCH:
                raise rows.refusal(row, "too many counts", value=count,
                                   allowed=f"at most {_MAX_BATCH}")
            before = grid[-1] if grid else times
            if any(high < low for low, high in pairwise(times)) or any(
                    high < low for low, high in zip(before, times, strict=True)):
                raise rows.refusal(row, "times fall with count or size")
            grid.append(times)
        cube.append(grid)
    return cube


def slopes(times_ms: Sequence[float]) -> list[float]:
    """Return the slope of the lower convex envelope of times of 1 … B behind each count 0 … B.

    So at least so much time does a further member of a batch add, in the mean of those that it
    takes to come to the next corner of the envelope; infinite behind the largest count.
    """
    corners: list[int] = []
    for b in range(len(times_ms)):
        while len(corners) > 1:
            first, second = corners[-2], corners[-1]
            if ((times_ms[second] - times_ms[first]) * (b - second)
                    < (times_ms[b] - times_ms[second]) * (second - first)):
                break
            corners.pop()
        corners.append(b)
    result = [0.0]
    for low, high in pairwise(corners):
        slope = (times_ms[high] - times_ms[low]) / (high - low)
        result += [max(slope, result[-1])] * (high - low)
    return [*result, inf]


def interpolated(sizes: Sequence[int], times_ms: Sequence[Sequence[float]], count: int,
                 total: float) -> float:
    """Return the time of a batch by its total size, infinite beyond the table."""
    if total > sizes[-1]:
        return inf
    if total <= sizes[0]:
        return times_ms[0][count - 1]
    high = bisect_left(sizes, total)
    low = high - 1
    part = (total - sizes[low]) / (sizes[high] - sizes[low])
    before, after = times_ms[low][count - 1], times_ms[high][count - 1]
    return before + (after - before) * part


def orders(tables: SizedTables) -> list[list[list[int]]]:
    """Return the cells of each model and level in the order in which they are served.

    Cell ``class * bins + bin``. The highest gain goes first, for each unit of size where nothing
    is padded; of equal ones the smaller class, then the smaller slack.
    """
    bins, result = tables.bins, []
    for reward in tables.reward:
        by_level = []
        for values in tables.values:
            key = []
            for c, row in enumerate(values):
                each = 1.0 if tables.law == "padded" else tables.mean_size[c]
                key += [-(reward[c] - value) / each for value in row]
            by_level.append(sorted(range(len(values) * bins), key=key.__getitem__))
        result.append(by_level)
    return result


class SizedBatch(NamedTuple, Generic[T]):
    """What the rule decides."""

    model: int  # -1 where nothing waits
    members: list[T]
    time_ms: float  # that the batch takes at most, by the tables
    dropped: list[T]  # requests that can no longer be in time


class _ModelLevel(NamedTuple):
    """Tables of one model at one level, by the rank of a cell in the order of serving."""

    rank: list[int]  # of class * (bins + 1) + bin, whose last one is that before it
    gain: list[int]
    value: list[float]  # gain in the unit of rewards
    delete: dict[tuple[int, int], bytes]  # ranks that a class and a least bin leave out
    class_of: list[int]


class SizedRule:
    """Decision rule over the requests of a queue, for every state of it.

    Parameters
    ----------
    tables : SizedTables
    """

    def __init__(self, tables: SizedTables) -> None:
        self.tables = tables
        self.padded = tables.law == "padded"
        self.bin_ms = tables.slo_ms / tables.bins
        self.middle_ms = [(k + 0.5) * self.bin_ms for k in range(tables.bins)]
        self.most = len(tables.times_ms[0][0])
        self.max_size = tables.edges[-1]
        self.slopes = [[slopes(row) for row in model] for model in tables.times_ms] \
            if self.padded else []
        self._place_of = [bisect_left(tables.sizes, size) for size in range(self.max_size + 1)] \
            if self.padded else []
        self._class_of = [bisect_left(tables.edges, size) for size in range(self.max_size + 1)]
        self._single_ms = [min(self.time_ms(m, 1, size) for m in range(len(tables.models)))
                           for size in range(self.max_size + 1)]
        self._levels = [
            [self._model_level(m, level, order) for level, order in enumerate(by_level)]
            for m, by_level in enumerate(orders(tables))]
        # Value lost in slo_ms, by class * (bins + 1) + bin.
        self._aging = [[lost for row in level for lost in (*row, row[-1])]
                       for level in tables.aging]

    def _model_level(self, model: int, level: int, order: list[int]) -> _ModelLevel:
        tables, bins = self.tables, self.tables.bins
        place = {cell: rank for rank, cell in enumerate(order)}
        rank = [place[c * bins + min(k, bins - 1)] for c in range(len(tables.edges))
                for k in range(bins + 1)]
        reward = tables.reward[model]
        values = [value for row in tables.values[level] for value in row]
        gain = [reward[cell // bins] - values[cell] for cell in order]
        delete = {}
        for last in range(len(tables.edges)):
            for least in range(bins + 1):
                delete[last, least] = bytes(
                    r for r, cell in enumerate(order)
                    if cell // bins > last or cell % bins < least)
        return _ModelLevel(rank, gain, [each * UNIT for each in gain], delete,
                           [cell // bins for cell in order])

    def time_ms(self, model: int, count: int, size: int) -> float:
        """Return the time of a batch, by its longest (padded) or its total size."""
        if self.padded:
            return self.tables.times_ms[model][self._place_of[size]][count - 1]
        return interpolated(self.tables.sizes, self.tables.times_ms[model], count, size)


class SizedQueue(Generic[T]):
    """The requests that wait for the workers of one queue.

    Parameters
    ----------
    rule : SizedRule
    """

    def __init__(self, rule: SizedRule) -> None:
        self.rule = rule
        classes = len(rule.tables.edges)
        # By class, in the order of arrival: deadlines, sizes and requests.
        self._deadline_ms: list[list[float]] = [[] for _ in range(classes)]
        self._size: list[list[int]] = [[] for _ in range(classes)]
        self._request: list[list[T]] = [[] for _ in range(classes)]

    def __len__(self) -> int:
        return sum(map(len, self._request))

    def add(self, request: T, size: int, arrival_ms: float) -> None:
        """Add a request that has arrived, in the order of arrival.

        Raises
        ------
        IndexError
            The size is beyond the tables.
        """
        c = self.rule._class_of[size]
        self._deadline_ms[c].append(arrival_ms + self.rule.tables.slo_ms)
        self._size[c].append(size)
        self._request[c].append(request)

    def decide(self, now_ms: float, free_ms: float = inf) -> SizedBatch[T]:
        """Take the next batch of an idle worker out of the queue, and requests without hope.

        Parameters
        ----------
        now_ms : float
        free_ms : float
            Time until another worker is free: 0 where one is idle, infinite where there is none.
        """
        rule = self.rule
        tables, padded = rule.tables, rule.padded
        dropped = self._drop_hopeless(now_ms)
        bin_ms, width, bins = rule.bin_ms, tables.bins + 1, tables.bins
        cells: list[int] = []
        backlog, waiting = 0, []
        for c, deadlines in enumerate(self._deadline_ms):
            if deadlines:
                base = c * width
                cells += [base + int((due - now_ms) / bin_ms) for due in deadlines]
                backlog += tables.work_us[c] * len(deadlines)
                waiting.append(c)
        if not cells:
            return SizedBatch(-1, [], 0.0, dropped)
        level = min(backlog // tables.level_us, len(tables.price) - 1)
        price = tables.price[level]
        aging = sum(map(rule._aging[level].__getitem__, cells)) * UNIT / tables.slo_ms
        worths = (price + aging,) if free_ms == inf else (price + aging, price)
        best, chosen = -inf, None
        for m, levels in enumerate(rule._levels):
            of_level = levels[level]
            ranks = bytes(sorted(map(of_level.rank.__getitem__, cells)))
            times, earliest = tables.times_ms[m], bins
            for c in waiting if padded else (len(tables.edges) - 1,):
                if padded:
                    earliest = min(earliest, int((self._deadline_ms[c][0] - now_ms) / bin_ms))
                    place = rule._place_of[max(self._size[c])]
                    row, slope = times[place], rule.slopes[m][place]
                else:
                    earliest, row = 0, times[0]
                first = bisect_left(rule.middle_ms, row[0])
                for worth in worths:
                    left, most = ranks, rule.most
                    least = first
                    for _ in range(2):
                        left = ranks.translate(None, of_level.delete[c, least])
                        if not left:
                            break
                        if padded:
                            count = _count(left, slope, worth, of_level.value, most)
                            gain = sum(map(of_level.gain.__getitem__, left[:count]))
                            time_ms = row[count - 1]
                        else:
                            count, gain, time_ms = self._packed(left, m, level, worth, most)
                            if not count:
                                break
                        late = bisect_left(rule.middle_ms, time_ms)
                        if late <= earliest or len(left[:count].translate(
                                None, of_level.delete[c, late])) == count:
                            value = gain * UNIT - price * time_ms - aging * min(time_ms, free_ms)
                            if value > best:
                                best, chosen = value, (m, c, left[:count], time_ms)
                            break
                        least, most = late, count
        if chosen is not None:
            m, c, taken, time_ms = chosen
            members = self._take(now_ms, rule._levels[m][level], c, taken, time_ms, m)
            if members:
                return SizedBatch(m, members, time_ms, dropped)
        return self._oldest(dropped)

    def _drop_hopeless(self, now_ms: float) -> list[T]:
        """Remove requests that not even a batch of their own answers in time."""
        rule, dropped = self.rule, []
        single_ms, edges = rule._single_ms, rule.tables.edges
        for c, deadlines in enumerate(self._deadline_ms):
            if deadlines and deadlines[0] - now_ms + SLACK_TOLERANCE_MS < single_ms[edges[c]]:
                sizes = self._size[c]
                hopeless = [due - now_ms + SLACK_TOLERANCE_MS < single_ms[size]
                            for due, size in zip(deadlines, sizes, strict=True)]
                if any(hopeless):
                    dropped += self._remove(c, hopeless)
        return dropped

    def _remove(self, c: int, chosen: list[bool]) -> list[T]:
        """Remove the chosen requests of a class and return them."""
        requests, left = self._request[c], [not yes for yes in chosen]
        removed = [*compress(requests, chosen)]
        requests[:] = compress(requests, left)
        self._deadline_ms[c][:] = compress(self._deadline_ms[c], left)
        self._size[c][:] = compress(self._size[c], left)
        return removed

    def _packed(
        self, ranks: bytes, model: int, level: int, worth: float, most: int,
    ) -> tuple[int, int, float]:
        """Return count, gain and time of the best batch of the cells first in order."""
        tables, of_level = self.rule.tables, self.rule._levels[model][level]
        best, result = -inf, (0, 0, 0.0)
        count, gain, total = 0, 0, 0.0
        for rank, same in groupby(ranks):
            added = min(len(list(same)), most - count)
            count += added
            gain += added * of_level.gain[rank]
            total += added * tables.mean_size[of_level.class_of[rank]]
            time_ms = interpolated(tables.sizes, tables.times_ms[model], count, total)
            if time_ms == inf:
                break
            value = gain * UNIT - worth * time_ms
            if value > best:
                best, result = value, (count, gain, time_ms)
            if count == most:
                break
        return result

    def _take(
        self, now_ms: float, of_level: _ModelLevel, last: int, taken: bytes, time_ms: float,
        model: int,
    ) -> list[T]:
        """Remove the members of a batch: the oldest of each cell that it answers in time."""
        rule, members = self.rule, []
        bin_ms, width = rule.bin_ms, rule.tables.bins + 1
        wanted = {rank: len(list(same)) for rank, same in groupby(taken)}
        rank_of = of_level.rank
        total, picked = 0, {}
        for c in range(last + 1):
            deadlines = self._deadline_ms[c]
            if not deadlines:
                continue
            chosen, base, some = [], c * width, False
            for due in deadlines:
                slack_ms = due - now_ms
                rank = rank_of[base + int(slack_ms / bin_ms)]
                yes = slack_ms + SLACK_TOLERANCE_MS >= time_ms and wanted.get(rank, 0) > 0
                if yes:
                    wanted[rank] -= 1
                    some = True
                chosen.append(yes)
            if some:
                picked[c] = chosen
        if not rule.padded:
            for c, chosen in picked.items():
                total += sum(size for size, yes in zip(self._size[c], chosen, strict=True) if yes)
            count = sum(map(sum, picked.values()))
            if count:
                time_ms = rule.time_ms(model, count, total)
                for c, chosen in picked.items():
                    picked[c] = [yes and due - now_ms + SLACK_TOLERANCE_MS >= time_ms
                                 for due, yes in zip(self._deadline_ms[c], chosen, strict=True)]
        for c, chosen in picked.items():
            members += self._remove(c, chosen)
        return members

    def _oldest(self, dropped: list[T]) -> SizedBatch[T]:
        """Take the oldest request alone, on the model that is fastest for it."""
        rule = self.rule
        c = min((c for c, deadlines in enumerate(self._deadline_ms) if deadlines),
                key=lambda c: self._deadline_ms[c][0])
        size = self._size[c][0]
        times_ms = [rule.time_ms(m, 1, size) for m in range(len(rule.tables.models))]
        members = self._remove(c, [True] + [False] * (len(self._size[c]) - 1))
        return SizedBatch(times_ms.index(min(times_ms)), members, min(times_ms), dropped)


def _count(
    ranks: bytes, slope: Sequence[float], worth: float, value: Sequence[float], most: int,
) -> int:
    """Return how many of the first requests gain at least what their time is worth; 1 or more.

    Gains fall and slopes rise, so the first that does not is found by halving.
    """
    low, high = 1, min(len(ranks), most)
    while low < high:
        middle = (low + high) // 2
        if slope[middle] * worth <= value[ranks[middle]]:
            low = middle + 1
        else:
            high = middle
    return low
