"""Queue-aware planner: replicas are chosen by their estimated goodput in simulation.

The value of a plan is the requests that it answers in time, as estimated by
:mod:`ramsis.studies.sharing.estimate`: batches as the router gathers them at the model's rate,
within the waiting limit; queues at the GPUs; times that depend on the batches that run beside. It
is not batch / latency. Among plans within 0.01 % of each other the one with fewer replicas, then
smaller batches, is better.

*Headroom*: half of a plan's value is its value when all latencies are 10 % longer than profiled. A
replica that is busy all the time answers in time for a few seconds; if it is a little slower, or
the load lasts longer, its queue grows without end.

The search changes a plan while that makes it better, from several starts:

1. *reassign* a model: remove all its replicas, and place c new ones of batch b, for all b and c;
   each on the GPU with the least load, or with the most load that still leaves room;
2. *adjust* a replica: another batch, another GPU, an exchange with another one, remove, add one;
3. *remove* a model, or reassign it, and reassign another at once.

Changes are compared by the first seed's arrivals, and the best of them by all arrivals. The search
stops where no change is better; at the end replicas are removed that add less than 0.05 % of the
requests in time. Starts place the models one after the other, the lightest or the heaviest first,
and from an empty plan. All these give a model replicas of one batch. So another start is the best
of the plans of Usher, WAO-Usher, iGniter, AO-MILP and WSM-MILP, by this planner's value; the
programs have a minute.

*Shedding*: the router sends all requests of a model to its replicas in turn, in proportion to
their batches. So a model with more load than its replicas can take has next to no requests in
time. A replica that *sheds* takes the excess away. It is limited to 1 % of the multiprocessors,
and its requests are late. Beside c replicas of batch b that can take y requests per second each, a
shedding batch of c b (r / (p c y) - 1) reduces a rate r to a part p of their capacity.

From the best plan so far, unless it serves all, the search continues with two more changes: *tune*
batches by a few requests, to sizes between the measured ones, and *shed*. It does so once more
after a search that puts the model with the smallest share in time first: goodput alone does not
lead from a model without replicas to several that are served in part. As shedding allows many
changes, short runs choose the likely ones.

Longer runs of other arrivals choose among all these plans and the unchanged plans of the other
policies. At both latencies each plan has a share of the best plan's requests in time; the plan is
taken whose smaller share is the largest. Runs with yet other arrivals measure what it promises.

*Fair*: the smallest share in time of a model comes first, then goodput.

*Replanning*: with ``keep``, present replicas are worth a little more than equal new ones, so that
they stay, and keep their queues, where that costs nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from placement_milp.backend import Limits
from ramsis.errors import InputFileError, RamsisError
from ramsis.studies.sharing.estimate import Estimator, Item, State
from ramsis.studies.sharing.gpu.interference import THESIS, Interference
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, RouterSettings, SharedModel
from ramsis.studies.sharing.igniter import Igniter
from ramsis.studies.sharing.plan import SharingPolicy, check_given
from ramsis.studies.sharing.usher import Usher

# First seeds of the arrivals: for the search, for its last choice, for the promise; apart, so that
# no plan is judged by the arrivals that chose it.
_SEARCH, _CHECK, _PROMISE = 900_000, 910_000, 920_000
_ENOUGH = 600_000  # requests of a run at the end, beyond which shares hardly change
_FAIR = 1000.0  # weight of the smallest share in time, above any goodput (at most 1)
# Prices that decide between equal plans, as shares of the load: of a replica, of a request of its
# batch, of a replica that is not there yet.
_PER_REPLICA, _PER_BATCH, _PER_CHANGE = 2e-5, 1e-8, 1e-4
_KEPT = 5e-4  # share of the requests in time below which a replica is removed at the end
_BETTER = 1e-6  # gain below which a change is rounding
_PROGRAM_S = 60.0  # for each integer program of the other policies
_STEPS = (-4, -2, -1, 1, 2, 4)  # changes of a batch when a plan is tuned
_ALL = 0.9995  # share in time at which there is nothing left to gain
_SHED = 0.01  # share of the multiprocessors of a replica that sheds; the least that MPS allows
_SHED_SIZES = (1, 2, 4, 8, 16, 32)
_LIKELY = 40  # changes that short runs leave for the full comparison
_SHORT = 0.25  # length of a short run, as a share of the arrivals
_BUSY = (0.97, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35)  # parts of their capacity to which load is reduced
_FULL = 0.9  # load up to which a GPU has room


@dataclass(frozen=True)
class QueueAware:
    """The queue-aware planner."""

    # how batches are gathered
    router: RouterSettings = RouterSettings()  # noqa: RUF009 - it is frozen
    interference: Interference = THESIS  # how batches slow each other down
    # duration of the arrivals by which plans are compared; overloaded plans lose more the longer
    duration_s: float = 20.0
    seeds: int = 4  # sets of arrivals
    # share by which latencies are longer in half of the value, >= 0; 0: the profile alone
    headroom: float = 0.1
    # duration of the arrivals, of other seeds, that decide at the end and give the promise
    checked_s: float = 60.0
    fair: bool = False  # whether the model with the smallest share in time comes first
    # largest sum of utilisations on a GPU; ``None`` leaves it to interference
    compute_limit: float | None = None
    keep: tuple[Replica, ...] = ()  # replicas that are there now
    rounds: int = 60  # most changes from each start
    # whether replicas may take away requests that the others cannot answer in time
    sheds: bool = True
    measured_batches: bool = False  # whether replicas that answer have measured batches only

    def __post_init__(self) -> None:
        if min(self.duration_s, self.checked_s) <= 0 or self.seeds < 1:
            raise InputFileError("no arrivals to compare plans by",
                                 value=(self.duration_s, self.checked_s, self.seeds),
                                 allowed="duration_s and checked_s > 0, seeds >= 1")
        if not 0 <= self.headroom < math.inf:
            raise InputFileError("not a headroom", value=self.headroom,
                                 allowed="a finite number >= 0")

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        """Return replicas of the models on the GPUs."""
        check_given(models, gpus)
        search = _Search.of(self, models, gpus)
        plans = search.plans_of_others()
        states = [search.pruned(search.improved(start)) for start in search.starts(plans)]
        states += search.finer_plans(max(states, key=search.worth))
        check = _Worth.of(self, models, gpus, _CHECK, self._checked_s(models))
        chosen = check.chosen([*states, *filter(search.within_limit, plans)])
        return [Replica(models[item.model].name, gpu.name, item.batch, item.mps_share)
                for gpu, items in zip(gpus, chosen, strict=True) for item in items]

    def served(
        self, models: Sequence[SharedModel], gpus: Sequence[Gpu], replicas: Sequence[Replica],
        latency_factor: float = 1.0,
    ) -> dict[str, float]:
        """Return the promise of replicas, by arrivals that chose no plan, for ``checked_s``.

        Parameters
        ----------
        latency_factor : float
            Factor on all latencies.

        Returns
        -------
        dict
            Model → requests per second in time.
        """
        check_given(models, gpus)
        slower = [model.slower(latency_factor) for model in models]
        check = _Worth.of(replace(self, headroom=0.0), slower, gpus, _PROMISE,
                          self._checked_s(models))
        shares = check.estimators[0].served(_state_of(models, gpus, replicas))
        return {model.name: float(share) * model.rate_rps
                for model, share in zip(models, shares, strict=True)}

    def _checked_s(self, models: Sequence[SharedModel]) -> float:
        """Return ``checked_s``, or less where that is more requests than anything depends on."""
        total_rps = sum(model.rate_rps for model in models)
        return min(self.checked_s, max(self.duration_s, _ENOUGH / total_rps))

    def again(self, replicas: Sequence[Replica]) -> QueueAware:
        """Return the planner for another load, which keeps replicas where that costs nothing."""
        return replace(self, keep=tuple(replicas))


@dataclass(frozen=True)
class _Worth:
    """Value of a plan: goodput as a share of the load, with small tie-breaking terms."""

    settings: QueueAware
    models: Sequence[SharedModel]
    estimators: tuple[Estimator, ...]  # one for each latency that counts
    kept: State  # the replicas that are there now
    fair: bool  # whether the smallest share of a model comes first

    @classmethod
    def of(
        cls, settings: QueueAware, models: Sequence[SharedModel], gpus: Sequence[Gpu],
        first_seed: int, duration_s: float, seeds: int | None = None,
    ) -> _Worth:
        """Create the value by arrivals of a duration, of all the settings' seeds or of fewer."""
        factors = [1.0, 1.0 + settings.headroom] if settings.headroom else [1.0]
        count = settings.seeds if seeds is None else seeds
        estimators = tuple(Estimator(
            [model.slower(factor) for model in models], gpus, settings.router,
            settings.interference, 1000 * duration_s, range(first_seed, first_seed + count))
            for factor in factors)
        names = {model.name for model in models}
        kept = [replica for replica in settings.keep if replica.model in names]
        return cls(settings, models, estimators, _state_of(models, gpus, kept), settings.fair)

    def __call__(self, state: State, seeds: int | None = None) -> float:
        """Return the value of a plan, by all or by the first seeds."""
        return self.goodput(state, seeds) + self._small_terms(state)

    def _small_terms(self, state: State) -> float:
        """Return the terms that decide between equal plans."""
        items = [item for items in state for item in items]
        value = -_PER_REPLICA * len(items) - _PER_BATCH * sum(item.batch for item in items)
        if self.settings.keep:
            value -= _PER_CHANGE * sum(
                (Counter(items) - Counter(before)).total()
                for items, before in zip(state, self.kept, strict=True))
        return value

    def goodput(self, state: State, seeds: int | None = None) -> float:
        """Return the share of the load in time, the mean over latencies, with the fair term."""
        values = self.goodputs(state, seeds)
        return sum(values) / len(values)

    def goodputs(self, state: State, seeds: int | None = None) -> list[float]:
        """Return the goodput at each of the latency factors."""
        total = sum(model.rate_rps for model in self.models)
        values = []
        for estimator in self.estimators:
            shares = estimator.served(state, seeds)
            value = sum(float(share) * model.rate_rps
                        for share, model in zip(shares, self.models, strict=True)) / total
            if self.fair:
                value += _FAIR * float(min(shares))
            values.append(value)
        return values

    def chosen(self, states: Sequence[State]) -> State:
        """Return the plan that loses least at any latencies, as a share of the best plan there."""
        if self.fair:
            # Ratios of smallest shares near 0 have no meaning.
            return max(states, key=self)
        goodputs = {state: self.goodputs(state) for state in states}
        best = [max(1e-9, *column) for column in zip(*goodputs.values(), strict=True)]
        return max(goodputs, key=lambda state: self._small_terms(state) + min(
            value / most for value, most in zip(goodputs[state], best, strict=True)))


@dataclass(frozen=True)
class _Search:
    """Local search over plans."""

    settings: QueueAware
    models: Sequence[SharedModel]
    gpus: Sequence[Gpu]
    # worth, short: values by the arrivals of the search, and by a quarter of one seed's
    worth: _Worth
    short: _Worth
    batches: Sequence[Sequence[int]]  # by model: measured batches that are in time
    sheds: bool = False  # whether changes bring replicas that shed requests

    @classmethod
    def of(
        cls, settings: QueueAware, models: Sequence[SharedModel], gpus: Sequence[Gpu]
    ) -> _Search:
        worth = _Worth.of(settings, models, gpus, _SEARCH, settings.duration_s)
        short = _Worth.of(settings, models, gpus, _SEARCH, _SHORT * settings.duration_s, 1)
        kinds = dict.fromkeys(gpu.gpu_type for gpu in gpus)
        batches = [sorted({row.batch for kind in kinds for row in model.in_time(kind)})
                   for model in models]
        return cls(settings, models, gpus, worth, short, batches)

    def plans_of_others(self) -> list[State]:
        """Return the plans of the published policies, unchanged, as far as these have any."""
        plans = []
        for policy in _others():
            with suppress(RamsisError):
                plans.append(_state_of(self.models, self.gpus, policy(self.models, self.gpus)))
        return plans

    def starts(self, plans: Sequence[State]) -> Iterator[State]:
        """Yield plans to begin with; one is the best of given plans without their shares."""
        empty: State = ((),) * len(self.gpus)
        heavy = sorted(range(len(self.models)), key=self._heaviness)
        for order in ((), heavy, heavy[::-1]):
            state = empty
            for m in order:
                state = self._best(state, self._reassigned(state, m)) or state
            yield state
        if any(self.worth.kept):
            yield self.worth.kept
        if plans:
            yield max((self._like(plan) for plan in plans), key=self.worth)

    def finer_plans(self, best: State) -> Iterator[State]:
        """Yield refinements of a plan: tuned batches, then replicas that shed requests."""
        if min(self.worth.goodputs(best)) >= _ALL * (1 + _FAIR * self.settings.fair):
            return
        yield self._tuned(best)
        if not self.settings.sheds:
            return
        shedding = replace(self, sheds=True)
        yield shedding._tuned(shedding.improved(best))
        # The plan that puts the smallest share first leaves no model out.
        fair = replace(shedding, worth=replace(self.worth, fair=True),
                       short=replace(self.short, fair=True))
        yield shedding._tuned(shedding.improved(fair.improved(best)))

    def _like(self, plan: State) -> State:
        """Return the replicas of another policy's plan that fit, without shares."""
        state: State = ((),) * len(self.gpus)
        for g, items in enumerate(plan):
            for item in items:
                unshared = item._replace(mps_share=None)
                if self._fits(state, g, unshared):
                    state = _with(state, g, (*state[g], unshared))
        return state

    def _heaviness(self, m: int) -> float:
        model = self.models[m]
        return model.rate_rps / max((row.rate_rps for rows in model.batches.values()
                                     for row in rows), default=1.0)

    def improved(self, state: State) -> State:
        """Return the plan at the end of all changes that make it better."""
        for _ in range(self.settings.rounds):
            for changes in (self._reassigned_any, self._adjusted, self._exchanged):
                better = self._best(state, changes(state))
                if better is not None:
                    state = better
                    break
            else:
                return state
        return state

    def _tuned(self, state: State) -> State:
        """Return the plan pruned, with batches between the measured sizes where allowed."""
        for _ in range(0 if self.settings.measured_batches else self.settings.rounds):
            better = self._best(state, self._finer(state))
            if better is None:
                break
            state = better
        return self.pruned(state)

    def pruned(self, state: State) -> State:
        """Return the plan without replicas that hardly serve any request."""
        while True:
            best = max((smaller for _, _, smaller in _one_less(state)),
                       key=self.worth, default=state)
            least = _KEPT * self.worth.goodput(state)
            if best == state or self.worth(best) < self.worth(state) - least:
                return state
            state = best

    def _best(self, state: State, changed: Iterable[State]) -> State | None:
        """Return the best of some plans, if it is better than the present one."""
        first = self.worth(state, 1)
        plans = dict.fromkeys(changed)
        if self.sheds and len(plans) > _LIKELY:
            # Shedding allows many more changes, of which short runs leave the likely ones.
            plans = dict.fromkeys(sorted(plans, key=self.short, reverse=True)[:_LIKELY])
        scored = {plan: self.worth(plan, 1) for plan in plans}
        likely = sorted((plan for plan in scored if scored[plan] > first + _BETTER),
                        key=lambda plan: -scored[plan])[:4]
        if not likely:
            return None
        best = max(likely, key=self.worth)
        return best if self.worth(best) > self.worth(state) + _BETTER else None

    def _reassigned_any(self, state: State) -> Iterator[State]:
        for m in range(len(self.models)):
            yield from self._reassigned(state, m)

    def _reassigned(self, state: State, m: int) -> Iterator[State]:
        """Yield plans with all replicas of a model removed, and c of batch b placed."""
        bare = _without(state, m)
        yield bare
        rate = self.models[m].rate_rps
        for batch in self.batches[m]:
            fastest = max(row.rate_rps for gpu in self.gpus
                          if (row := self.models[m].batch(gpu.gpu_type, batch)) is not None)
            most = min(2 * len(self.gpus), int(rate / fastest) + 3)
            # Spread, replicas are disturbed least; packed, they leave whole GPUs to others.
            for spread in (True, False):
                placed: State | None = bare
                for count in range(1, most + 1):
                    assert placed is not None
                    placed = self._placed(placed, m, batch, most=count, spread=spread)
                    if placed is None:
                        break
                    yield placed
                    for busy in _BUSY:
                        kept = placed
                        for size in self._excess(m, batch * count, busy * fastest * count):
                            kept = self._shedding(kept, m, size) or kept
                        if kept is not placed:
                            yield kept

    def _excess(self, m: int, gathered: int, most_rps: float) -> list[int]:
        """Return the sizes of the shedding batches that reduce a model's rate to ``most_rps``.

        ``gathered`` requests come while a batch of each replica gathers. None are shed where
        more than four largest batches would be.
        """
        rate = self.models[m].rate_rps
        left = round(gathered * (rate / most_rps - 1)) if self.sheds else 0
        measured = max((row.batch for rows in self.models[m].batches.values() for row in rows),
                       default=0)
        largest = max(1, min(measured, int(rate * self.settings.router.waiting_ms / 1000)))
        return [] if left > 4 * largest else [
            min(largest, left - begin) for begin in range(0, left, largest)]

    def _shedding(self, state: State, m: int, size: int) -> State | None:
        """Add a replica that sheds requests, on the GPU with the least load."""
        item = Item(m, size, _SHED)
        room = [g for g in range(len(self.gpus)) if self._fits(state, g, item)]
        if not room:
            return None
        g = min(room, key=lambda g: (self._load(state, g), g))
        return _with(state, g, (*state[g], item))

    def _placed(
        self, state: State, m: int, batch: int, *, most: int, spread: bool
    ) -> State | None:
        """Add a replica, on the GPU with the least load, or the most that leaves room."""
        room = [g for g in range(len(self.gpus)) if self._fits(state, g, Item(m, batch))]
        if not room:
            return None
        replicas_on = {g: sum(item.model == m for item in state[g]) for g in room}
        fewest = min(replicas_on.values())
        room = [g for g in room if replicas_on[g] == fewest]
        loads = {g: self._load(state, g) for g in room}
        if spread:
            g = min(room, key=lambda g: (loads[g], g))
        else:
            row = self.models[m].batch(self.gpus[room[0]].gpu_type, batch)
            assert row is not None
            added = row.utilisation * min(1.0, self.models[m].rate_rps / most / row.rate_rps)
            fitting = [g for g in room if loads[g] + added <= _FULL]
            g = max(fitting, key=lambda g: (loads[g], -g)) if fitting else min(
                room, key=lambda g: (loads[g], g))
        return _with(state, g, (*state[g], Item(m, batch)))

    def _adjusted(self, state: State) -> Iterator[State]:
        """Yield plans with another batch or GPU for a replica, one less, one more."""
        for g, i, without in _one_less(state):
            item = state[g][i]
            yield without
            for batch in self.batches[item.model]:
                changed = item._replace(
                    batch=batch, mps_share=_SHED if item.mps_share == _SHED else None)
                if changed != item and self._fits(without, g, changed):
                    yield _replaced(state, g, i, changed)
            for other in range(len(state)):
                if other != g and self._fits(without, other, item):
                    yield _with(without, other, (*without[other], item))
                # Each pair of GPUs once, as an exchange is the same from both sides.
                for j, second in enumerate(state[other] if other > g else ()):
                    both = _with(without, other, state[other][:j] + state[other][j + 1:])
                    if self._fits(both, g, second):
                        both = _with(both, g, (*both[g], second))
                        if self._fits(both, other, item):
                            yield _with(both, other, (*both[other], item))
        for m, g in itertools.product(range(len(self.models)), range(len(state))):
            yield from self._added(state, g, m)
        for m in range(len(self.models)) if self.sheds else ():
            for size in _SHED_SIZES:
                shed = self._shedding(state, m, size)
                if shed is not None:
                    yield shed

    def _added(self, state: State, g: int, m: int) -> Iterator[State]:
        """Yield plans with one more replica of a model on a GPU, by each batch that fits."""
        for batch in self.batches[m]:
            if self._fits(state, g, Item(m, batch)):
                yield _with(state, g, (*state[g], Item(m, batch)))

    def _finer(self, state: State) -> Iterator[State]:
        """Yield plans with a slightly changed batch, of one replica or of all equal ones."""
        for item in sorted({item for items in state for item in items}, key=str):
            for step in _STEPS:
                changed = item._replace(batch=item.batch + step)
                if changed.batch < 1:
                    continue
                all_of_them = state
                for g, i, without in _one_less(state):
                    if state[g][i] == item and self._fits(without, g, changed):
                        yield _replaced(state, g, i, changed)
                        all_of_them = _replaced(all_of_them, g, i, changed)
                yield all_of_them

    def _exchanged(self, state: State) -> Iterator[State]:
        """Yield plans with a model removed and another reassigned, or a replica of it replaced."""
        placed = {item.model for items in state for item in items}
        for m in sorted(placed):
            bare = _without(state, m)
            for other in range(len(self.models)):
                if other != m:
                    yield from self._reassigned(bare, other)
        for g, i, without in _one_less(state):
            for m in range(len(self.models)):
                if m != state[g][i].model:
                    yield from self._added(without, g, m)

    def _fits(self, state: State, g: int, item: Item) -> bool:
        """Return whether a GPU has the memory, and the multiprocessors where these are limited."""
        rows = []
        for placed in (*state[g], item):
            model = self.models[placed.model]
            row = model.batch(self.gpus[g].gpu_type, placed.batch)
            # Requests of a shedding replica are late anyway.
            if row is None or (row.latency_ms > model.slo_ms and placed.mps_share != _SHED):
                return False
            rows.append((row, placed.mps_share or 1.0))
        limit = self.settings.compute_limit
        return sum(row.memory for row, _ in rows) <= 1 and (
            limit is None or sum(min(row.utilisation, share) for row, share in rows)
            <= limit + 1e-9)

    def within_limit(self, plan: State) -> bool:
        """Return whether another policy's plan keeps the limit of utilisations, if any."""
        return self.settings.compute_limit is None or all(
            self._fits(_with(plan, g, items[:i]), g, item)
            for g, items in enumerate(plan) for i, item in enumerate(items))

    def _load(self, state: State, g: int) -> float:
        """Return the multiprocessors of a GPU that its replicas keep busy, at full batches."""
        gathered: Counter[int] = Counter()
        for items in state:
            for item in items:
                gathered[item.model] += item.batch
        load = 0.0
        for item in state[g]:
            model = self.models[item.model]
            row = model.batch(self.gpus[g].gpu_type, item.batch)
            assert row is not None
            rate = model.rate_rps * item.batch / gathered[item.model]
            load += min(item.mps_share or 1.0,
                        row.utilisation * min(1.0, rate / row.rate_rps))
        return load


def _others() -> list[SharingPolicy]:
    """Return the published policies; programs as far as they are solved in a minute."""
    from ramsis.studies.sharing.presets.gpu_sharing import (
        gpu_sharing,  # presets import this module
    )
    from ramsis.studies.sharing.programs import Program

    limits = Limits(seconds=_PROGRAM_S)
    return [Usher(), Usher(metric="weighted_occupancy"), Igniter(measured_batches=True),
            *(Program(gpu_sharing, metric, limits) for metric in ("occupancy", "utilisation"))]


def _state_of(
    models: Sequence[SharedModel], gpus: Sequence[Gpu], replicas: Sequence[Replica]
) -> State:
    """Return replicas by GPU; those on other GPUs are left out."""
    number = {model.name: m for m, model in enumerate(models)}
    return tuple(tuple(Item(number[replica.model], replica.batch, replica.mps_share)
                       for replica in replicas if replica.gpu == gpu.name) for gpu in gpus)


def _with(state: State, g: int, items: tuple[Item, ...]) -> State:
    return (*state[:g], items, *state[g + 1:])


def _without(state: State, m: int) -> State:
    return tuple(tuple(item for item in items if item.model != m) for items in state)


def _replaced(state: State, g: int, i: int, item: Item) -> State:
    return _with(state, g, (*state[g][:i], item, *state[g][i + 1:]))


def _one_less(state: State) -> Iterator[tuple[int, int, State]]:
    """Yield each replica, by GPU and position there, and the plan without it."""
    for g, items in enumerate(state):
        for i in range(len(items)):
            yield g, i, _with(state, g, items[:i] + items[i + 1:])
