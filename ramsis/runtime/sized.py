"""Lookup of a policy for requests with a size: which of those that wait are the next batch.

Requests lie in cells by size class and slack. The tables have for each level of backlog

- V(cell): the value of a request that still waits after a short time. The *gain* of a request is
  reward − V: what an answer in time now wins;
- the value that a request of a cell loses in each ms. Summed over all waiting requests, it is the
  *cost of waiting* per ms;
- the price of a ms of a worker.

For each model and each size class of a waiting request, a candidate batch takes requests of no
larger class in the order of falling gain, as long as a member's gain is at least (price + cost of
waiting) × the time that the member adds to the batch. The worth of a batch is the sum of its
gains − price × its time − cost of waiting × its time; the cost of waiting counts only until
another worker is free. The batch of the highest worth runs. Where nothing is padded, requests are
ordered by gain per unit of size, and there is one candidate for each model.
``docs/policy-file.md`` states the format and each step. Standard library only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from math import ceil, inf
from typing import Any, Generic, NamedTuple, TypeVar

from ramsis.errors import FRACTION, NON_NEGATIVE, POSITIVE
from ramsis.fields import Fields
from ramsis.runtime.table import MAX_WORKERS, SLACK_TOLERANCE_MS

T = TypeVar("T")

SIZED_FORMAT = "ramsis.sized-policy/1"
SIZED_MANIFEST_FORMAT = "ramsis.sized-manifest/1"
LAWS = ("padded", "packed")
UNIT = 1e-6
"""Values in the file are whole multiples of this."""
MAX_CELLS = 256  # cells have ranks that fit into a byte
_MAX_SIZE = 65_536
_MAX_VALUE = 10**12
_MAX_BATCH = 4096
_KEYS = ("law", "edges", "mean_size", "work_us", "level_us", "bins", "reward", "values", "aging",
         "price", "sizes", "times_ms")


class SizedPlan(NamedTuple):
    """The replanned dynamic program, where no rule is better."""

    model: int
    keep: float  # share of a batch that is in time, at least


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
    plan: SizedPlan | None = None  # what decides in place of the rule

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
        rule.check_rising("edges", edges)
        classes = len(edges)
        if classes > MAX_CELLS:
            raise rule.refusal("edges", "too many classes", value=classes,
                               allowed=f"at most {MAX_CELLS}")
        bins = rule.whole("bins", 1, MAX_CELLS // classes)
        price = rule.numbers("price", NON_NEGATIVE)
        sizes = rule.wholes("sizes", 1)
        rule.check_rising("sizes", sizes)
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
            times_ms=_times(rule, len(models), len(sizes)), plan=_plan(fields, models))


def _plan(fields: Fields, models: Sequence[str]) -> SizedPlan | None:
    plan = fields.child_or_none("plan") if "plan" in fields else None
    if plan is None:
        return None
    plan.only(("model", "keep"))
    return SizedPlan(models.index(plan.text("model", models)), plan.number("keep", FRACTION))


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


def bin_us(slo_ms: float, bins: int) -> int:
    """Return the length of a bin of slack in whole microseconds."""
    return max(1, ceil(1000.0 * slo_ms / bins))


def slopes(times_ms: Sequence[float]) -> list[float]:
    """Return the slope of the lower convex envelope of batch times, from each count 0 … B on.

    ``times_ms`` are the times of batches of 1 … B. The slope from count b on is the least mean
    time that further members add to a batch of b, up to the next corner of the envelope. It is 0
    from count 0 and infinite from count B on.
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

    The number of a cell is ``class * bins + bin``. The highest gain comes first, or the highest
    gain per unit of size where nothing is padded; of equal cells the smaller class, then the
    smaller slack.
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
    """Decision of the rule: a batch to run, and requests to drop."""

    model: int  # -1 where nothing waits
    members: list[T]
    time_ms: float  # longest time of the batch, by the tables
    dropped: list[T]  # requests that can no longer be in time


class _ModelLevel(NamedTuple):
    """Tables of one model at one level, by the rank of a cell in the order of serving."""

    rank: bytes  # by class * bins + bin
    gain: list[int]  # by rank, in the integers of the file
    value: list[float]  # by rank, the gain in the unit of rewards
    # ranks to leave out, by largest class and least bin: those of larger classes or lower bins
    delete: list[list[bytes]]
    class_of: bytes  # class of each rank


class _Row(NamedTuple):
    """Times of a model's batches for one longest (padded) or total size, by count less 1."""

    times_ms: Sequence[float]
    slopes: Sequence[float]  # of :func:`slopes`, by count from 0 on; none where nothing is padded
    bins: list[int]  # first slack bin for which a batch is in time
    least_ms: list[float]  # time on the envelope of these slopes, by count from 0 on


class _State(NamedTuple):
    """Waiting requests, level and prices at one decision of the rule."""

    classes: list[int]  # those with requests
    level: int  # of backlog
    price: float  # of a ms of a worker
    aging: float  # value that all waiting requests together lose in a ms
    free_ms: float  # time until another worker is free


class _Candidate(NamedTuple):
    """Batch that the decision rule may choose for an idle worker."""

    value: float  # worth: gains less price and cost of waiting
    model: int
    last: int  # largest class of which it may take members
    taken: bytes  # ranks of its members
    time_ms: float
    least: int  # first slack bin of which it takes members


_Front = tuple[int, float, float]  # count, sum of gains and time of a batch
_NOTHING = _Candidate(-inf, -1, 0, b"", 0.0, 0)
_TWICE = range(2)
_NEAR = 3  # members by which candidates of neighbouring classes mostly differ
_ROUNDING = 1e-9  # of sums of values, which are millions of UNIT at most


class SizedRule:
    """Decision rule over the requests of a queue, for every state of it."""

    def __init__(self, tables: SizedTables) -> None:
        self.tables = tables
        self.padded = tables.law == "padded"
        self.bin_us = bin_us(tables.slo_ms, tables.bins)
        self.middle_ms = [(k + 0.5) * self.bin_us / 1000.0 for k in range(tables.bins)]
        self.most = len(tables.times_ms[0][0])
        self.max_size = tables.edges[-1]
        self.place_of = [bisect_left(tables.sizes, size) for size in range(self.max_size + 1)] \
            if self.padded else []
        self.class_of = [bisect_left(tables.edges, size) for size in range(self.max_size + 1)]
        self.single_ms = [min(self.time_ms(m, 1, size) for m in range(len(tables.models)))
                          for size in range(self.max_size + 1)]
        self.longest_ms = [self.single_ms[edge] for edge in tables.edges]
        self.rows = [list(map(self._row, model)) for model in tables.times_ms]
        self.levels = [
            [self._model_level(m, level, order) for level, order in enumerate(by_level)]
            for m, by_level in enumerate(orders(tables))]
        # Value that a request loses in slo_ms, by level and class * bins + bin.
        self.aging = [[lost for row in level for lost in row] for level in tables.aging]

    def _row(self, times_ms: Sequence[float]) -> _Row:
        slope = slopes(times_ms) if self.padded else []
        return _Row(times_ms, slope, [bisect_left(self.middle_ms, time) for time in times_ms],
                    [0.0, *accumulate(slope[1:-1], initial=times_ms[0])])

    def _model_level(self, model: int, level: int, order: list[int]) -> _ModelLevel:
        """Tabulate ranks, gains and excluded cells of a model at a level, in serving order."""
        tables, bins = self.tables, self.tables.bins
        place = {cell: rank for rank, cell in enumerate(order)}
        rank = bytes(place[cell] for cell in range(len(order))).ljust(256, b"\xff")
        reward = tables.reward[model]
        values = [value for row in tables.values[level] for value in row]
        gain = [reward[cell // bins] - values[cell] for cell in order]
        delete = [[bytes(r for r, cell in enumerate(order)
                         if cell // bins > last or cell % bins < least)
                   for least in range(bins + 1)] for last in range(len(tables.edges))]
        return _ModelLevel(rank, gain, [each * UNIT for each in gain], delete,
                           bytes(cell // bins for cell in order).ljust(256, b"\xff"))

    def time_ms(self, model: int, count: int, size: int) -> float:
        """Return the time of a batch, by its longest (padded) or its total size."""
        if self.padded:
            return self.tables.times_ms[model][self.place_of[size]][count - 1]
        return interpolated(self.tables.sizes, self.tables.times_ms[model], count, size)


def _best_front(fronts: list[_Front], worth: float) -> _Front | None:
    """Return the batch of the most value where a ms of it costs ``worth``, the first of equals."""
    values = [gain - worth * time_ms for _, gain, time_ms in fronts]
    return fronts[values.index(max(values))] if values else None


class SizedQueue(Generic[T]):
    """Queue of waiting requests, from which a rule takes the batches of idle workers."""

    def __init__(self, rule: SizedRule) -> None:
        self.rule = rule
        self.slowness = 1.0  # service time as a multiple of the profiled one
        classes = len(rule.tables.edges)
        # By class, in the order of arrival: requests, their deadlines and their sizes.
        self._waiting: list[list[T]] = [[] for _ in range(classes)]
        self._deadline_ms: list[list[float]] = [[] for _ in range(classes)]
        self._size: list[list[int]] = [[] for _ in range(classes)]
        self._longest = [0] * classes
        self._work_us = 0  # backlog
        self._newest_us = 0  # latest deadline, in µs, rounded down
        self._last = 0  # largest class of the preceding batch, likely that of the next one, too
        # Deadlines in µs, rounded down, plus the length of all cells of lower classes: divided by
        # the length of a bin, the remaining time gives class * bins + bin.
        self._deadline_us: list[list[int]] = [[] for _ in range(classes)]
        self._take_bins()

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def _take_bins(self) -> None:
        """Scale the bins by the slowness, and recompute the shifted deadlines."""
        tables = self.rule.tables
        self._bin_us = int(self.rule.bin_us * self.slowness + 0.5)
        self._begin_us = [c * tables.bins * self._bin_us for c in range(len(tables.edges))]
        self._deadline_us = [
            [int(1000.0 * deadline_ms) + begin for deadline_ms in deadlines]
            for deadlines, begin in zip(self._deadline_ms, self._begin_us, strict=True)]
        self._longest_ms = [time_ms * self.slowness for time_ms in self.rule.longest_ms]
        # While the latest deadline is less than this away, all slacks are within the bins. They
        # may be below 0, too, where a batch may be shorter than the tolerance.
        self._span_us = (tables.bins * self._bin_us
                         if self.rule.single_ms[0] >= SLACK_TOLERANCE_MS else -inf)

    def take_slowness(self, slowness: float) -> None:
        """Decide from now on for batches that take ``slowness`` times as long, 1 or more.

        Instead of the tables' times, slacks and the time until another worker is free are scaled:
        both are divided by ``slowness``.
        """
        self.slowness = slowness
        self._take_bins()

    def alone_ms(self, size: int) -> float:
        """Return the time of a request in a batch of its own, on the fastest model."""
        return self.rule.single_ms[size] * self.slowness

    def add(self, request: T, size: int, arrival_ms: float) -> None:
        """Add a request that has arrived, in the order of arrival.

        A size beyond the tables is an IndexError.
        """
        c = self.rule.class_of[size]
        deadline_ms = arrival_ms + self.rule.tables.slo_ms
        self._newest_us = int(1000.0 * deadline_ms)
        self._waiting[c].append(request)
        self._deadline_ms[c].append(deadline_ms)
        self._deadline_us[c].append(self._newest_us + self._begin_us[c])
        self._size[c].append(size)
        self._work_us += self.rule.tables.work_us[c]
        if size > self._longest[c]:
            self._longest[c] = size

    def decide(self, now_ms: float, free_ms: float = inf) -> SizedBatch[T]:
        """Remove from the queue the next batch of an idle worker, and requests that must be late.

        ``free_ms`` is the time until another worker is free: 0 if another one is idle, infinite if
        there is none.
        """
        rule = self.rule
        tables, bin_us, now_us = rule.tables, self._bin_us, int(1000.0 * now_ms)
        soonest_ms, longest_ms = now_ms - SLACK_TOLERANCE_MS, self._longest_ms
        dropped: list[T] = []
        for c, deadlines in enumerate(self._deadline_ms):
            if deadlines and deadlines[0] - soonest_ms < longest_ms[c]:
                self._drop_hopeless(c, soonest_ms, dropped)
        classes = [c for c, waiting in enumerate(self._waiting) if waiting]
        if not classes:
            return SizedBatch(-1, [], 0.0, dropped)
        if self._newest_us - now_us < self._span_us:
            cells = bytes([(due - now_us) // bin_us
                           for due in chain.from_iterable(self._deadline_us)])
        else:
            cells = self._cells_within(now_us)
        level = min(self._work_us // tables.level_us, len(tables.price) - 1)
        aging = sum(map(rule.aging[level].__getitem__, cells)) * UNIT / tables.slo_ms
        state = _State(classes, level, tables.price[level], aging, free_ms / self.slowness)
        best = _NOTHING
        for m, levels in enumerate(rule.levels):
            ranks = bytes(sorted(cells.translate(levels[level].rank)))
            if rule.padded:
                best = self._best_padded(state, m, ranks, best)
            else:
                best = self._best_packed(state, m, ranks, best)
        if best.model >= 0:
            members = self._take(now_ms, level, best)
            if members:
                return SizedBatch(best.model, members, best.time_ms, dropped)
        return self._oldest(dropped)

    def _cells_within(self, now_us: int) -> bytes:
        """Return the cells of all requests, with slacks beyond the bins in the nearest bin."""
        bins = self.rule.tables.bins
        return bytes([
            min(max((due - now_us) // self._bin_us, c * bins), c * bins + bins - 1)
            for c, dues in enumerate(self._deadline_us) for due in dues])

    def _best_padded(self, state: _State, m: int, ranks: bytes, best: _Candidate) -> _Candidate:
        """Return the best batch of model ``m``, or ``best`` if its net value is larger.

        ``ranks`` are the ranks of the waiting requests' cells for the model, sorted.
        """
        # One body without helpers: a call for each class would take a third of the time.
        rule, longest = self.rule, self._longest
        classes, level, price, aging, free_ms = state
        _, gain_of, value_of, delete, _ = rule.levels[m][level]
        rows, place_of, most = rule.rows[m], rule.place_of, rule.most
        most_value, top = best.value, value_of[ranks[0]] + _ROUNDING
        last, alone = self._last, free_ms == inf
        # What a ms of the batch costs: before another worker is free, and after it.
        worths = (price + aging,) if alone else (price + aging, price)
        least_rate = worths[-1]
        chosen, members, chosen_ms, chosen_bin = -1, b"", 0.0, 0  # of the best batch of the model
        guess = 1  # count of the preceding candidate, as those of neighbouring classes are similar
        # The class of the preceding batch first: against a good batch, bounds exclude others
        # without the sums of their gains.
        for c in (last, *classes) if last in classes else classes:
            row, slope, bin_of, least_ms = rows[place_of[longest[c]]]
            if slope[1] * least_rate > top and top - least_rate * row[0] < most_value:
                continue  # no second member pays, and no single one is the best
            leave_out = delete[c]
            answered = ranks.translate(None, leave_out[bin_of[0]])
            if not answered:
                continue
            settled = 0  # count of the first worth's first pass, if that was in time
            for worth in worths:
                # First with all requests that a batch of one answers in time. If the batch makes
                # some of them late, once more without these, and with at most as many members.
                left, least, limit = answered, bin_of[0], most
                for _ in _TWICE:
                    high = len(left)
                    if high > limit:
                        high = limit
                    # Gains fall and slopes rise, so bisection finds the first member that costs
                    # more than it gains. It is looked for near the guess first.
                    count = 1
                    if guess < high:
                        if slope[guess] * worth <= value_of[left[guess]]:
                            count = guess + 1
                            near = guess + _NEAR
                            if near < high and slope[near] * worth > value_of[left[near]]:
                                high = near
                        else:
                            high = guess
                            near = guess - _NEAR
                            if near > 0 and slope[near] * worth <= value_of[left[near]]:
                                count = near + 1
                    while count < high:
                        middle = (count + high) >> 1
                        if slope[middle] * worth <= value_of[left[middle]]:
                            count = middle + 1
                        else:
                            high = middle
                    guess = count
                    # Upper bound on the sum of gains, as gains fall: each member of the first half
                    # gains at most the first gain, each other one the first gain of its half. If
                    # the bound less the least cost is below the best value, no subset is better.
                    half = count >> 1
                    bound = value_of[left[0]] * half + value_of[left[half]] * (
                        count - half) + _ROUNDING
                    if alone and bound - worth * least_ms[count] < most_value:
                        break
                    if count == settled and left is answered:
                        break  # the same batch again
                    time_ms, late, taken = row[count - 1], bin_of[count - 1], left[:count]
                    if late > least and len(taken.translate(None, leave_out[late])) < count:
                        left, least, limit = ranks.translate(None, leave_out[late]), late, count
                        if not left:
                            break
                        continue
                    if left is answered:
                        settled = count
                    cost = price * time_ms + aging * (
                        time_ms if time_ms < free_ms else free_ms)
                    if bound - cost < most_value:
                        break
                    value = sum(map(gain_of.__getitem__, taken)) * UNIT - cost
                    if value > most_value or (value == most_value and c < chosen):
                        most_value, chosen = value, c
                        members, chosen_ms, chosen_bin = taken, time_ms, least
                    break
        return best if chosen < 0 else _Candidate(
            most_value, m, chosen, members, chosen_ms, chosen_bin)

    def _best_packed(self, state: _State, m: int, ranks: bytes, best: _Candidate) -> _Candidate:
        """Return the best packed batch of model ``m``, or ``best`` if its net value is larger.

        As in :meth:`_best_padded`, a second pass leaves out requests that the batch makes late.
        """
        rule, last = self.rule, len(self._size) - 1
        _, level, price, aging, free_ms = state
        leave_out, first = rule.levels[m][level].delete[last], rule.rows[m][0].bins[0]
        answered = ranks.translate(None, leave_out[first])
        fronts = self._fronts(answered, m, level, rule.most)
        for worth in (price + aging,) if free_ms == inf else (price + aging, price):
            left, front, least = answered, _best_front(fronts, worth), first
            for _ in _TWICE:
                if front is None:
                    break
                count, gain, time_ms = front
                taken, late = left[:count], bisect_left(rule.middle_ms, time_ms)
                if len(taken.translate(None, leave_out[late])) < count:
                    left, least = ranks.translate(None, leave_out[late]), late
                    front = _best_front(self._fronts(left, m, level, count), worth)
                    continue
                value = gain - (price * time_ms + aging * min(time_ms, free_ms))
                if value > best.value:
                    best = _Candidate(value, m, last, taken, time_ms, least)
                break
        return best

    def _fronts(self, ranks: bytes, model: int, level: int, most: int) -> list[_Front]:
        """Return the batches of at most ``most`` from the front of ``ranks`` that end a cell."""
        tables, of_level = self.rule.tables, self.rule.levels[model][level]
        sizes, times_ms, mean_size = tables.sizes, tables.times_ms[model], tables.mean_size
        gain_of, class_of, largest = of_level.gain, of_level.class_of, sizes[-1]
        fronts: list[_Front] = []
        count, gain, total, place, end = 0, 0, 0.0, 0, min(len(ranks), most)
        while count < end:
            rank, before = ranks[count], count
            count = bisect_right(ranks, rank, before, end)
            gain += (count - before) * gain_of[rank]
            total += (count - before) * mean_size[class_of[rank]]
            if total > largest:
                break
            # The time by linear interpolation, as of :func:`interpolated`.
            while sizes[place] < total:
                place += 1
            time_ms = times_ms[place][count - 1]
            if place:
                low, low_ms = sizes[place - 1], times_ms[place - 1][count - 1]
                time_ms = low_ms + (time_ms - low_ms) * ((total - low) / (sizes[place] - low))
            fronts.append((count, gain * UNIT, time_ms))
        return fronts

    def _drop_hopeless(self, c: int, soonest_ms: float, dropped: list[T]) -> None:
        """Remove the requests of a class that even a batch of one would answer late.

        They are added to ``dropped``.
        """
        waiting, deadlines, sizes = self._waiting[c], self._deadline_ms[c], self._size[c]
        longest_ms, single_ms, slowness = self._longest_ms[c], self.rule.single_ms, self.slowness
        count = 0
        kept: list[int] = []  # of the first ones, which the longest of the class is late for
        for at, deadline_ms in enumerate(deadlines):
            slack_ms = deadline_ms - soonest_ms
            if slack_ms >= longest_ms:
                break
            if slack_ms < single_ms[sizes[at]] * slowness:
                dropped.append(waiting[at])
                count += 1
            else:
                kept.append(at)
        if count:
            if kept:  # moved behind those that go
                upto = count + len(kept)
                columns: tuple[list[Any], ...] = (waiting, deadlines, sizes, self._deadline_us[c])
                for column in columns:
                    column[count:upto] = [column[at] for at in kept]
            self._remove(c, 0, count)

    def _remove(self, c: int, start: int, end: int) -> None:
        """Remove the requests ``start`` to ``end - 1`` of a class."""
        sizes = self._size[c]
        del self._waiting[c][start:end], self._deadline_ms[c][start:end]
        del self._deadline_us[c][start:end], sizes[start:end]
        self._longest[c] = max(sizes) if sizes else 0
        self._work_us -= (end - start) * self.rule.tables.work_us[c]

    def _take(self, now_ms: float, level: int, best: _Candidate) -> list[T]:
        """Remove and return the members of a batch, except those that would be answered late.

        Within a class gains fall as slack rises. So the members of a class are neighbours in the
        order of arrival: the oldest from the batch's least slack bin on.
        """
        rule, self._last = self.rule, best.last
        soonest_ms = now_ms - SLACK_TOLERANCE_MS
        # A request's slack is in the batch's least bin, or in a later one, from this time on.
        from_us = int(1000.0 * now_ms) + best.least * self._bin_us
        classes = best.taken.translate(rule.levels[best.model][level].class_of)
        slices, time_ms = [], best.time_ms * self.slowness
        for c in set(classes):
            deadlines, due_us = self._deadline_ms[c], self._deadline_us[c]
            first_us = from_us + self._begin_us[c]
            start = 0 if due_us[0] >= first_us else bisect_left(due_us, first_us)
            end = start + classes.count(c)
            while start < end and deadlines[start] - soonest_ms < time_ms:
                start += 1
            if start < end:
                slices.append((c, start, end))
        if slices and not rule.padded:
            total = sum(sum(self._size[c][start:end]) for c, start, end in slices)
            count = sum(end - start for _, start, end in slices)
            time_ms = rule.time_ms(best.model, count, total) * self.slowness
        members: list[T] = []
        for c, start, end in slices:
            if not rule.padded:
                deadlines = self._deadline_ms[c]
                while start < end and deadlines[start] - soonest_ms < time_ms:
                    start += 1
            members += self._waiting[c][start:end]
            self._remove(c, start, end)
        return members

    def _oldest(self, dropped: list[T]) -> SizedBatch[T]:
        """Remove the oldest request and return it as a batch of one on its fastest model."""
        rule = self.rule
        c = min((c for c, waiting in enumerate(self._waiting) if waiting),
                key=lambda c: self._deadline_ms[c][0])
        size = self._size[c][0]
        times_ms = [rule.time_ms(m, 1, size) for m in range(len(rule.tables.models))]
        request = self._waiting[c][0]
        self._remove(c, 0, 1)
        return SizedBatch(times_ms.index(min(times_ms)), [request], min(times_ms), dropped)


class ArrivalBatch:
    """Batch that grows by requests in the order of arrival, for a server that owns the queue.

    A request joins if the batch with it takes at most ``limit_ms``, and no longer than the present
    batch and the request alone, one after the other. A refused request begins the next batch. The
    policy of ``rule`` has one model.
    """

    def __init__(self, rule: SizedRule, limit_ms: float) -> None:
        self._rule, self._limit_ms = rule, limit_ms
        self._count, self._size, self._time_ms = 0, 0, 0.0

    def joins(self, size: int, queries: int = 1) -> bool:
        """Add a request of ``queries`` inputs of one size, if allowed; return whether it was."""
        padded = self._rule.padded
        alone = size if padded else queries * size
        together = max(self._size, size) if padded else self._size + alone
        count = self._count + queries
        time_ms = self._batch_ms(count, together)
        if self._count and not (time_ms <= self._limit_ms and time_ms <= (
                self._time_ms + self._batch_ms(queries, alone))):
            return False
        self._count, self._size, self._time_ms = count, together, time_ms
        return True

    def _batch_ms(self, count: int, size: int) -> float:
        """Return the time of a batch, infinite beyond the table."""
        rule = self._rule
        largest = rule.max_size if rule.padded else rule.tables.sizes[-1]
        within = 1 <= count <= rule.most and 1 <= size <= largest
        return rule.time_ms(0, count, size) if within else inf
