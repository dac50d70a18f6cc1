"""Several SLO classes in one queue by deadline: the slack of the head, and promises."""

from functools import cache

import numpy as np
import pytest

from ramsis.central.classes import ClassesProblem
from ramsis.central.problem import CentralProblem
from ramsis.cluster.cluster import SloClass
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.policy import Policy
from ramsis.synthesis import generate_policy, problem_of
from ramsis.synthesis.simulated import simulated
from ramsis.verify.central import dual_bound
from ramsis.verify.checks import least_dual, least_dual_of_classes
from tests.central import samples
from tests.reference.deadline_queue import head_slacks
from tests.slow import slow_after
from tests.synthesis.samples import tiny_profile

CLASSES = (SloClass(60.0, 0.3), SloClass(100.0, 0.7))


@cache
def problem(load_qps: float, classes: tuple[SloClass, ...] = CLASSES) -> CentralProblem:
    return samples.problem(load_qps, slo_classes=classes, grid="fixed:20")


def policy(load_qps: float, workers: int = 20) -> Policy:
    chosen = samples.settings(slo_classes=CLASSES, workers=workers)
    return generate_policy(tiny_profile(), load_qps, chosen)


@pytest.mark.parametrize(("load_qps", "queued"), [
    (200.0, 1), (2000.0, 3), (200.0, 8), (2000.0, 14)])
def test_the_law_of_the_head_is_that_of_drawn_queues(load_qps, queued):
    found = problem(load_qps)
    n = found.queue.tolist().index(queued)
    rng = np.random.default_rng(queued)
    draws = 4000
    slos, shares = [60.0, 100.0], [0.3, 0.7]
    drawn = np.array(head_slacks(slos, shares, load_qps / 1000.0, queued, 8, draws, rng))
    others = (np.array(head_slacks(slos, shares, load_qps / 1000.0, queued - 1, 8, draws, rng))
              if queued > 1 else np.full(draws, np.inf))
    arrived = np.minimum(others, np.where(rng.random(draws) < 0.3, 60.0, 100.0))
    mine = found.slack_distribution
    for probability, sample in ((mine[1, n], drawn), (mine[0, n], arrived)):
        bins = np.maximum(np.searchsorted(found.slack_ms, sample, side="right") - 1, 0)
        seen = np.bincount(bins, minlength=len(probability)) / draws
        # 5 standard deviations, and the step of the probability's nodes.
        assert np.abs(np.cumsum(seen) - np.cumsum(probability)).max() < (
            5 * 0.5 / np.sqrt(draws) + 0.005)


def test_one_class_has_the_erlang_law():
    plain = samples.problem(1500.0, grid="fixed:20")
    one = ClassesProblem.of(plain, (SloClass(100.0),))
    assert one.slack_ms.tolist() == plain.slack_ms.tolist()
    change = one.slack_distribution - plain.slack_distribution
    assert np.abs(np.cumsum(change, axis=2)).max() < 0.005
    likely = plain.slack_distribution[1] > 0.02
    likely[0] = False
    assert np.abs(one.mean_age_ms - plain.mean_age_ms)[likely].max() < 1.5
    behind = np.minimum(plain.slack_in_queue_ms, 100.0)  # beyond the queue nothing is looked at
    assert np.abs(one.slack_in_queue_ms - behind)[likely].max() < 5.0


def test_queries_stand_by_deadline_behind_the_head():
    found = problem(1500.0)
    slack = found.slack_in_queue_ms
    for n, queued in enumerate(found.queue.tolist()):
        within = slack[n, :, :queued]
        assert (np.diff(within, axis=1) >= -1e-9).all()
        assert within.max(initial=0.0) <= 100.0 + 1e-9
    # A query that has just come in a hurry stands alone before those that have time.
    fresh, two = found.slack_ms.tolist().index(60.0), found.queue.tolist().index(2)
    assert slack[two, fresh, 0] == pytest.approx(60.0)
    assert slack[two, fresh, 1] > 95.0


def test_equal_slos_are_refused_where_several_are_wanted():
    for classes in ((SloClass(100.0),), (SloClass(100.0, 0.5), SloClass(60.0, 0.5)),
                    (SloClass(60.0, 0.3), SloClass(90.0, 0.7))):
        with pytest.raises(InvalidValueError, match=r"^slo_classes: not two or more rising"):
            samples.settings(slo_classes=classes)
    with pytest.raises(InfeasibleError, match=r"^slo_ms: .*got 3.0; allowed: at least 4 ms"):
        problem(100.0, (SloClass(3.0, 0.5), SloClass(100.0, 0.5)))


@pytest.mark.parametrize(("load_qps", "workers"), slow_after(2, [
    (900.0, 20), (400.0, 5), (3000.0, 20), (6000.0, 20)]))
def test_promises_are_those_of_simulation(load_qps, workers):
    made = policy(load_qps, workers)
    found = simulated(made, queries=200_000, runs=4, seed=0)
    half_width, expected = found.effective_half_width, made.expectations
    assert abs(expected.effective_accuracy - found.effective_accuracy) < 0.02 + half_width
    assert abs(expected.violation_rate - found.violation_rate) < 0.02
    assert expected.upper_bound is not None
    assert found.effective_accuracy <= expected.upper_bound + half_width + 1e-9
    assert dual_bound(problem_of(made), load_qps) == pytest.approx(expected.upper_bound, abs=1e-6)


def test_the_file_keeps_the_classes():
    made = policy(900.0)
    again = Policy.from_document(made.to_document(), "file")
    assert isinstance(again, Policy)
    assert again.slo_classes == CLASSES
    assert np.array_equal(problem_of(again).slack_distribution,
                          problem_of(made).slack_distribution)
    assert "slo_classes" not in samples.policy(900.0).to_document()


def test_the_dual_of_two_equal_classes_is_that_of_one():
    rng = np.random.default_rng(1)
    accuracy, price = rng.random(20), rng.random(20) * 3 + 0.1
    assert least_dual_of_classes([(0.4, accuracy, price), (0.6, accuracy, price)]) == \
        pytest.approx(least_dual(accuracy, price), abs=1e-12)
