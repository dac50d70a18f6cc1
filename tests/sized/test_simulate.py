"""Simulations of requests with a size: figures by class, schedulers by name, refusals."""

import numpy as np
import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.sim import ConstantLoad
from ramsis.sized.schedulers import SIZED_SCHEDULERS, sized_scheduler
from ramsis.sized.simulate import SizedRun, run_sized, serve_sized, simulate_sized
from scripts.sized import CELLS

CPU, FLASH = CELLS["cpu"].problem(), CELLS["flash"].problem()
LOAD = ConstantLoad(90.0, 20_000.0)


@pytest.mark.parametrize("name", SIZED_SCHEDULERS)
def test_figures_by_class_are_those_of_the_requests(name):
    runs: list[SizedRun] = []
    result = simulate_sized(CPU, sized_scheduler(name), LOAD, seeds=(0, 1), on_run=runs.append)
    row = result.row()
    assert row["queries"] == sum(run.run.requests for run in runs)
    assert sum(entry["share"] for entry in row["by_class"]) == pytest.approx(1.0)
    for i, entry in enumerate(row["by_class"]):
        low, high = entry["sizes"]
        rates = [float(run.run.in_time[(run.size >= low) & (run.size <= high)].mean())
                 for run in runs]
        assert entry["in_time_rate"] == pytest.approx(np.mean(rates))
        assert result.by_class[i].estimate("violation_rate").half_width is not None
    in_time = [run.run.in_time.mean() for run in runs]
    assert 1.0 - row["violation_rate"] == pytest.approx(np.mean(in_time))
    assert row["effective_accuracy"] == pytest.approx(np.mean(in_time))  # of one exact model


@pytest.mark.parametrize("name", SIZED_SCHEDULERS)
def test_batches_take_their_time_and_padding_adds_up(name):
    for problem, load in ((CPU, LOAD), (FLASH, ConstantLoad(7200.0, 300.0))):
        played = run_sized(problem, sized_scheduler(name), load, 3, slowness=1.5)
        run, computed, useful = played.run, 0, 0
        for batch in range(len(run.size)):
            sizes = played.size[run.batch_of == batch]
            assert len(sizes) == run.size[batch] <= max(512, problem.max_batch)
            measure = sizes.max() if problem.times.padded else sizes.sum()
            time_ms = 1.5 * problem.batch_ms(len(sizes), int(measure))[0]
            assert run.finish_ms[batch] == run.start_ms[batch] + time_ms
            computed += int(sizes.max()) * len(sizes) if problem.times.padded else sizes.sum()
            useful += int(sizes.sum())
        assert played.padding == pytest.approx(1.0 - useful / computed)
        busy_ms = np.sort(run.start_ms)[1:] - np.sort(run.finish_ms)[:-1]
        assert (busy_ms >= 0).all()


def test_weights_give_the_value_of_the_answers():
    edges = (16, 64, 256)
    problem = CELLS["cpu"].problem(edges=edges, weights=(1.0, 2.0, 5.0))
    runs: list[SizedRun] = []
    row = simulate_sized(problem, sized_scheduler("replanned-dp"), LOAD, on_run=runs.append).row()
    weight = np.array([1.0, 2.0, 5.0])[np.searchsorted(edges, runs[0].size)]
    assert row["value"] == pytest.approx((weight * runs[0].run.reward).mean())


def test_nothing_arrives():
    row = simulate_sized(CPU, sized_scheduler("replanned-dp"), ConstantLoad(0.001, 10.0)).row()
    assert row["queries"] == 0
    assert row["by_class"][0]["in_time_rate"] is None


def test_a_budget_is_the_best_in_hindsight():
    best = simulate_sized(CPU, sized_scheduler("token-budget"), LOAD)
    assert best.figures["max_tokens"] in {2.0**power for power in range(3, 15)}
    for budget in (8, 32, 64, 256, 16384):
        other = simulate_sized(CPU, sized_scheduler(f"token-budget:max_tokens={budget}"), LOAD)
        assert other.total.effective_accuracy <= best.total.effective_accuracy


def test_tei_rejects_beyond_its_concurrent_requests():
    played = run_sized(CPU, sized_scheduler("tei:max_concurrent=5,max_batch=4"), LOAD, 0)
    arrival_ms, left_ms = played.run.arrival_ms, np.where(
        played.run.answered, played.run.answered_ms, played.run.arrival_ms)
    inside = [(left_ms[:i] > now).sum() for i, now in enumerate(arrival_ms)]
    assert max(inside) == 5
    assert (np.array(inside)[played.run.drop_request] == 5).all()


def test_one_burst_is_one_batch():
    played = serve_sized(CPU, sized_scheduler("delay"), np.full(7, 3.0), np.full(7, 9),
                         duration_ms=10.0)
    assert played.run.size.tolist() == [7]


@pytest.mark.parametrize(("text", "error", "message"), [
    ("greedy", InputFileError, "not a scheduler of requests with a size"),
    ("tei:max_token=3", InputFileError, "max_tokens=int"),
    ("replanned-dp:keep=2", InvalidValueError, "scheduler replanned-dp: keep"),
    ("replanned-dp:order=first", InvalidValueError, "urgent, dense"),
    ("turbo-dp:late=never", InvalidValueError, "serve, drop"),
    ("token-budget:max_tokens=x", InputFileError, "got .x.; allowed: a int"),
])
def test_bad_schedulers_are_refused(text, error, message):
    with pytest.raises(error, match=message) as caught:
        sized_scheduler(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("text", "message"), [
    ("tei:max_tokens=100", "the longest request.*got 100; allowed: 256 tokens or more"),
    ("turbo-dp:model=other", "no such model.*encoder"),
])
def test_schedulers_that_do_not_fit_are_refused(text, message):
    with pytest.raises(InvalidValueError, match=message):
        run_sized(CPU, sized_scheduler(text), LOAD, 0)


def test_a_load_beyond_all_is_refused():
    with pytest.raises(InvalidValueError, match="check the unit"):
        simulate_sized(CPU, sized_scheduler("tei"), ConstantLoad(1e6, 1.0))
