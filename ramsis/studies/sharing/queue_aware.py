"""Queue-aware planner: local search over replicas by their simulated goodput.

The value of a plan is its number of requests in time, estimated by
:mod:`ramsis.studies.sharing.estimate` with the router's batching, queues at the GPUs and
interference; it is not batch / latency. Among plans within 0.01 % of each other the one with fewer
replicas, then smaller batches, is better.

*Headroom*: half of a plan's value is its value with all latencies 10 % longer than profiled. A
replica at full utilisation answers in time for a few seconds; if it is a little slower, or the
load lasts longer, its queue grows without bound.

The search improves a plan step by step, from several starts:

1. *reassign* a model: remove all its replicas, and place c new ones of batch b, for all b and c;
   each on the GPU with the least load, or with the most load that still leaves room;
2. *adjust* a replica: another batch, another GPU, an exchange with another one, remove, add one;
3. *remove* a model, or reassign it, and reassign another at once.

Changes are compared by the first seed's arrivals, and the best of them by all arrivals. The search
stops when no change is better; finally it removes replicas that add less than 0.05 % of the
requests in time. Starts place the models one after the other, the lightest or the heaviest first;
another start is the empty plan. All these have replicas of one batch per model. So the best plan,
by this planner's value, of Usher, WAO-Usher, iGniter, AO-MILP and WSM-MILP is a start, too; the
integer programs have a minute.

*Shedding*: the router sends all requests of a model to its replicas in turn, in proportion to
their batches. So an overloaded model has next to no requests in time. A replica that *sheds* takes
the excess away: it is limited to 1 % of the multiprocessors, and its requests are late. Beside c
replicas of batch b with a capacity of y requests per second each, a shedding batch of
c b (r / (p c y) - 1) reduces a rate r to a part p of their capacity.

Unless the best plan so far serves all, the search continues from it with two more changes: *tune*
batches by a few requests, to sizes between the measured ones, and *shed*. It does so once more
after a search that maximises the smallest share in time of a model first: goodput alone does not
lead from a model without replicas to several partly served ones. Shedding allows many changes, so
short runs preselect them.

Longer runs with other arrivals choose among all these plans and the unchanged plans of the other
policies: the plan with the largest minimum, over both latencies, of its requests in time relative
to the best plan's. Runs with yet other arrivals estimate the promised figures.

*Fair*: the smallest share in time of a model comes first, then goodput.

*Replanning*: with ``keep``, existing replicas are worth a little more than equal new ones, so that
they keep their queues if that costs nothing.
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

# First seeds of the arrivals: for the search, for the final choice, for the promise; disjoint, so
# that no plan is evaluated on the arrivals by which it was selected.
_SEARCH, _CHECK, _PROMISE = 900_000, 910_000, 920_000
_ENOUGH = 600_000  # requests of a final run; with more, shares hardly change
_FAIR = 1000.0  # weight of the smallest share in time, above any goodput (at most 1)
# Tie-breaking prices, as shares of the load: of a replica, of a request of its batch, of a replica
# that does not exist yet.
_PER_REPLICA, _PER_BATCH, _PER_CHANGE = 2e-5, 1e-8, 1e-4
_KEPT = 5e-4  # share of the requests in time below which a replica is finally removed
_BETTER = 1e-6  # smallest gain that counts as an improvement
_PROGRAM_S = 60.0  # time limit of each integer program of the other policies
_STEPS = (-4, -2, -1, 1, 2, 4)  # changes of a batch when a plan is tuned
_ALL = 0.9995  # share in time at which there is nothing left to gain
_SHED = 0.01  # share of the multiprocessors of a replica that sheds; the least that MPS allows
_SHED_SIZES = (1, 2, 4, 8, 16, 32)
_LIKELY = 40  # number of changes that short runs preselect
_SHORT = 0.25  # length of a short run, as a share of the arrivals
_BUSY = (0.97, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35)  # utilisations to which shedding reduces the load
_FULL = 0.9  # utilisation up to which a GPU has room


@dataclass(frozen=True)
class QueueAware:
    """Planner that searches replicas of the largest simulated goodput, queues included."""

    # settings of batching
    router: RouterSettings = RouterSettings()  # noqa: RUF009 - it is frozen
    interference: Interference = THESIS  # model of slow-downs
    # duration of simulated arrivals in the search; longer runs penalise overloaded plans more
    duration_s: float = 20.0
    seeds: int = 4  # number of sets of arrivals
    # relative increase of latencies in half of a plan's value, >= 0; 0: the profile alone
    headroom: float = 0.1
    # duration of the arrivals, of other seeds, for the final choice and for the promise
    checked_s: float = 60.0
    fair: bool = False  # whether the model with the smallest share in time comes first
    # largest sum of utilisations on a GPU; ``None``: no limit but interference
    compute_limit: float | None = None
    keep: tuple[Replica, ...] = ()  # existing replicas
    rounds: int = 60  # largest number of changes from each start
    # whether replicas may shed requests that the others cannot answer in time
    sheds: bool = True
    measured_batches: bool = False  # whether replicas, shedding ones aside, have measured batches

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
        """Estimate the requests in time of replicas, on arrivals that are used for nothing else.

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
        """Return ``checked_s``, shortened to a run of at most ``_ENOUGH`` requests."""
        total_rps = sum(model.rate_rps for model in models)
        return min(self.checked_s, max(self.duration_s, _ENOUGH / total_rps))

    def again(self, replicas: Sequence[Replica]) -> QueueAware:
        """Return a planner that prefers existing replicas, to plan again for another load."""
        return replace(self, keep=tuple(replicas))


@dataclass(frozen=True)
class _Worth:
    """Value of a plan: goodput as a share of the load, with small tie-breaking terms."""

    settings: QueueAware
    models: Sequence[SharedModel]
    estimators: tuple[Estimator, ...]  # one for each latency factor
    kept: State  # existing replicas
    fair: bool  # whether the smallest share of a model comes first

    @classmethod
    def of(
        cls, settings: QueueAware, models: Sequence[SharedModel], gpus: Sequence[Gpu],
        first_seed: int, duration_s: float, seeds: int | None = None,
    ) -> _Worth:
        """Create the value function by arrivals of a duration, for all or for fewer seeds."""
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
        """Return the tie-breaking terms of a plan's value."""
        items = [item for items in state for item in items]
        value = -_PER_REPLICA * len(items) - _PER_BATCH * sum(item.batch for item in items)
        if self.settings.keep:
            value -= _PER_CHANGE * sum(
                (Counter(items) - Counter(before)).total()
                for items, before in zip(state, self.kept, strict=True))
        return value

    def goodput(self, state: State, seeds: int | None = None) -> float:
        """Return the share of the load in time, averaged over latencies, with the fair term."""
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
        """Return the plan with the least worst-case loss over the latency factors."""
        if self.fair:
            # With the fair term, ratios of shares near 0 are meaningless.
            return max(states, key=self)
        goodputs = {state: self.goodputs(state) for state in states}
        best = [max(1e-9, *column) for column in zip(*goodputs.values(), strict=True)]
        return max(goodputs, key=lambda state: self._small_terms(state) + min(
            value / most for value, most in zip(goodputs[state], best, strict=True)))


@dataclass(frozen=True)
class _Search:
    """Local search over sharing plans by their simulated goodput."""

    settings: QueueAware
    models: Sequence[SharedModel]
    gpus: Sequence[Gpu]
    # value functions: by the arrivals of the search, and by a quarter of one seed's
    worth: _Worth
    short: _Worth
    batches: Sequence[Sequence[int]]  # by model: measured batches within the SLO
    sheds: bool = False  # whether changes may add replicas that shed requests

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
        """Return the unchanged plans of the published policies, if they find any."""
        plans = []
        for policy in _others():
            with suppress(RamsisError):
                plans.append(_state_of(self.models, self.gpus, policy(self.models, self.gpus)))
        return plans

    def starts(self, plans: Sequence[State]) -> Iterator[State]:
        """Yield starts of the search; one is the best of ``plans``, without their shares."""
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
        # The fair plan serves every model.
        fair = replace(shedding, worth=replace(self.worth, fair=True),
                       short=replace(self.short, fair=True))
        yield shedding._tuned(shedding.improved(fair.improved(best)))

    def _like(self, plan: State) -> State:
        """Convert another policy's plan: the replicas that fit, without shares."""
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
        """Return the local optimum that the search reaches from a plan."""
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
        """Return the best of the changed plans, or None if none improves on ``state``."""
        first = self.worth(state, 1)
        plans = dict.fromkeys(changed)
        if self.sheds and len(plans) > _LIKELY:
            # Shedding allows many more changes, which short runs preselect.
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
            # Spread replicas have the least interference; packed ones leave whole GPUs to others.
            for spread in (True, False):
                placed: State | None = bare
                for count in range(1, most + 1):
                    assert placed is not None
                    placed = self._placed(placed, m, batch, most=count, spread=spread)
                    if placed is None:
                        break
                    yield placed
                    # With shedding, the replicas are busy for the share ``busy`` of their
                    # capacity.
                    for busy in _BUSY:
                        shed = placed
                        for size in self._excess(m, batch * count, busy * fastest * count):
                            shed = self._shedding(shed, m, size) or shed
                        if shed is not placed:
                            yield shed

    def _excess(self, m: int, gathered: int, most_rps: float) -> list[int]:
        """Return the sizes of the shedding batches that reduce a model's rate to ``most_rps``.

        ``gathered`` requests fill one batch of each replica. Nothing is shed if more than four of
        the largest batches were necessary.
        """
        rate = self.models[m].rate_rps
        excess = round(gathered * (rate / most_rps - 1)) if self.sheds else 0
        measured = max((row.batch for rows in self.models[m].batches.values() for row in rows),
                       default=0)
        largest = max(1, min(measured, int(rate * self.settings.router.waiting_ms / 1000)))
        return [] if excess > 4 * largest else [
            min(largest, excess - begin) for begin in range(0, excess, largest)]

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
        """Add a replica on the GPU with the least load, or with the most load that leaves room."""
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
        """Yield plans with one changed replica: other batch or GPU, exchanged, removed, added."""
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
                # Exchanges are symmetric, so take each pair of GPUs once.
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
        """Yield plans with two changes: a model is removed or replaced, another one reassigned."""
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
        """Return whether a GPU has the memory, and the multiprocessors if these are limited."""
        rows = []
        for placed in (*state[g], item):
            model = self.models[placed.model]
            row = model.batch(self.gpus[g].gpu_type, placed.batch)
            # A shedding replica needs no multiprocessors: its requests are late anyway.
            if row is None or (row.latency_ms > model.slo_ms and placed.mps_share != _SHED):
                return False
            rows.append((row, placed.mps_share or 1.0))
        limit = self.settings.compute_limit
        return sum(row.memory for row, _ in rows) <= 1 and (
            limit is None or sum(min(row.utilisation, share) for row, share in rows)
            <= limit + 1e-9)

    def within_limit(self, plan: State) -> bool:
        """Return whether a plan respects the limit on utilisations, if any."""
        return self.settings.compute_limit is None or all(
            self._fits(_with(plan, g, items[:i]), g, item)
            for g, items in enumerate(plan) for i, item in enumerate(items))

    def _load(self, state: State, g: int) -> float:
        """Return the utilisation of a GPU by its replicas, with full batches."""
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
    """Return the published policies; integer programs with a time limit of a minute."""
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
    """Convert replicas to a plan; replicas on unknown GPUs are left out."""
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
    """Yield each replica's GPU and position, with the plan without this replica."""
    for g, items in enumerate(state):
        for i in range(len(items)):
            yield g, i, _with(state, g, items[:i] + items[i + 1:])
