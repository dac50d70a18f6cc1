"""The decision rule: the lookup and the compiled run take the same batches, on both laws."""

import heapq
from math import inf

import numpy as np
import pytest

from ramsis.arrivals.sizes import SizeDistribution
from ramsis.runtime.sized import SizedPlan, SizedQueue, SizedRule, interpolated, slopes
from ramsis.runtime.sized_plan import PlannedQueue
from ramsis.sim import ConstantLoad, Run
from ramsis.sized import SizedProblem
from ramsis.sized.problem import BatchTimes
from ramsis.sized.rule import IndexRule, RuleNumbers, RuleSpace, class_edges
from ramsis.sized.schedulers import ReplannedDP
from ramsis.sized.simulate import drawn, run_sized
from scripts.sized import CELLS

NUMBERS = RuleNumbers()


def two_models(padded: bool) -> SizedProblem:
    """Return a problem of a fast and an exact model, with weights."""
    counts = np.arange(1.0, 33.0)
    step = 1 if padded else 8
    measures = np.arange(0.0, 129.0) if padded else np.arange(0.0, 32 * 128 + 1.0, step)
    work = counts[:, None] * measures if padded else np.broadcast_to(measures, (32, len(measures)))
    fast = 3.0 + np.maximum(0.0, work - 64.0) / 40.0
    sizes = SizeDistribution(np.arange(1, 129), 1.0 / np.arange(1.0, 129.0))
    return SizedProblem(("fast", "exact"), np.array([0.7, 0.9]),
                        BatchTimes(padded, step, np.array([fast, 2.5 * fast + 1.0])), 80.0, 2,
                        sizes, (16, 128), (1.0, 2.5), "tokens", 128)


def played(
    queue: SizedQueue[int] | PlannedQueue[int], arrival_ms: list[float], size: list[int],
    workers: int, finish_of: list[float],
) -> list[tuple[int, list[int]]]:
    """Return the batches of the lookup; they finish when those of the compiled run do."""
    busy: list[float] = []
    batches: list[tuple[int, list[int]]] = []
    at, n = 0, len(size)
    while at < n or busy:
        now = min(arrival_ms[at] if at < n else inf, busy[0] if busy else inf)
        while busy and busy[0] <= now:
            heapq.heappop(busy)
        while at < n and arrival_ms[at] <= now:
            queue.add(at, size[at], arrival_ms[at])
            at += 1
        while len(busy) < workers and len(queue):
            free_ms = inf
            if workers > 1:
                free_ms = 0.0 if len(busy) < workers - 1 else busy[0] - now
            decided = queue.decide(now, free_ms)
            if decided.model < 0:
                break
            heapq.heappush(busy, finish_of[len(batches)])
            batches.append((decided.model, sorted(decided.members)))
    return batches


def agreed(
    problem: SizedProblem, load: ConstantLoad, run: Run, queue: SizedQueue[int] | PlannedQueue[int]
) -> list[tuple[int, list[int]]]:
    """Return the batches of the lookup, which are those of the compiled run."""
    members: list[list[int]] = [[] for _ in run.start_ms]
    for request, batch in enumerate(run.batch_of.tolist()):
        if batch >= 0:
            members[batch].append(request)
    arrival_ms, size = drawn(problem, load, 0)
    batches = played(queue, arrival_ms.tolist(), size.tolist(), problem.workers,
                     run.finish_ms.tolist())
    assert batches == list(zip(run.model.tolist(), members, strict=True))
    assert max(map(len, members)) > 1
    return batches


@pytest.mark.parametrize(("name", "workers", "load_qps"), [
    ("cpu", 1, 140.0), ("gpu", 1, 4800.0), ("gpu", 3, 14_000.0), ("flash", 1, 9600.0),
    ("two padded", 2, 1500.0), ("two packed", 2, 2500.0)])
def test_lookup_and_compiled_run_take_the_same_batches(name, workers, load_qps):
    """Members, models and their order agree, with several workers and models, too."""
    problem = (two_models(name == "two padded") if name.startswith("two")
               else CELLS[name].problem(workers=workers))
    tables = RuleSpace(problem).tables(NUMBERS)
    load = ConstantLoad(load_qps, 1000.0 * 1500 / load_qps)
    run = run_sized(problem, IndexRule(tables), load, 0).run
    batches = agreed(problem, load, run, SizedQueue(SizedRule(tables)))
    assert len({model for model, _ in batches}) == len(problem.models)
    answered = run.batch_of >= 0
    late = run.finish_ms[run.batch_of[answered]] > (
        run.arrival_ms[answered] + problem.slo_ms + 1e-6)
    assert not late.any()  # tables plan no batch shorter than it is


def test_slopes_are_those_of_the_lower_convex_envelope():
    """A step is spread over the counts that share it; no slope is behind the last count."""
    assert slopes([6.0, 6.0, 8.0, 8.0]) == [0.0, 0.0, 1.0, 1.0, inf]
    assert slopes([2.0, 4.0, 5.0]) == [0.0, 1.5, 1.5, inf]
    assert slopes([5.0]) == [0.0, inf]


def test_times_of_total_sizes_are_linear_between_those_of_the_table():
    """Below the table its first time holds, beyond it there is none."""
    sizes, times = [8, 16], [[1.0, 2.0], [3.0, 6.0]]
    assert interpolated(sizes, times, 2, 12.0) == 4.0
    assert interpolated(sizes, times, 1, 4.0) == 1.0
    assert interpolated(sizes, times, 1, 17.0) == inf


def test_classes_of_the_rule_cut_those_of_the_problem():
    """Each class of the problem is a union of classes of the rule, so that weights hold."""
    problem = CELLS["cpu"].problem()
    edges = class_edges(problem).tolist()
    assert set(problem.edges) <= set(edges)
    assert len(edges) == 16


def test_without_load_every_request_is_served_at_once():
    """A request that waits alone is a batch of its own, whatever the price."""
    rule = SizedRule(RuleSpace(CELLS["cpu"].problem()).tables(RuleNumbers(price=20.0)))
    queue: SizedQueue[str] = SizedQueue(rule)
    queue.add("long", 256, 0.0)
    assert queue.decide(0.0).members == ["long"]
    assert queue.decide(1.0).model == -1
    queue.add("late", 256, 0.0)
    decided = queue.decide(250.0)
    assert decided.model == -1
    assert decided.dropped == ["late"]


@pytest.mark.parametrize(("name", "workers", "load_qps"), [
    ("cpu", 1, 140.0), ("gpu", 3, 15_000.0), ("two padded", 2, 1500.0), ("two packed", 2, 2500.0)])
def test_lookup_of_a_plan_takes_the_batches_of_the_scheduler(name, workers, load_qps):
    """A file whose plan decides serves as ``replanned-dp`` does in simulations."""
    problem = (two_models(name == "two padded") if name.startswith("two")
               else CELLS[name].problem(workers=workers))
    model = len(problem.models) - 1
    space = RuleSpace(problem)
    tables = space.planned(space.tables(NUMBERS), SizedPlan(model, 0.9))
    load = ConstantLoad(load_qps, 1000.0 * 1000 / load_qps)
    run = run_sized(problem, IndexRule(tables), load, 0).run
    planned = ReplannedDP(model=problem.models[model], max_batch=problem.max_batch)
    same = run_sized(problem, planned, load, 0).run
    assert (run.batch_of == same.batch_of).all()
    agreed(problem, load, run, PlannedQueue(SizedRule(tables)))
