"""Figures of a window beside those that NumPy works out step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ramsis.policy import Policy
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.sim import ConstantLoad
from ramsis.sim._window import quantiles
from ramsis.sim.run import Run
from ramsis.sim.stationary import earned, in_steady_state, rates
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy
from ramsis.synthesis.simulated import prepared_policy
from tests.runs import run_plan
from tests.synthesis.samples import tiny_profile

LEVELS = (0.5, 0.95, 0.99)


@given(arrays(float, st.integers(1, 400), elements=st.floats(-1e6, 1e6) | st.sampled_from(
    [0.0, 1.0, 1.0 + 1e-15])), st.booleans())
def test_quantiles_are_numpys(values, often):
    if often:
        values = np.concatenate([values, np.repeat(values[0], 300)])
    levels = np.array([0.0, *LEVELS, 1.0])
    assert quantiles(values, levels) == pytest.approx(
        np.quantile(values, levels), rel=1e-9, abs=1e-9)


def _made(dispatch: str, **settings: object) -> Policy:
    return modelled_policy(tiny_profile(), 150.0, SynthesisSettings(
        slo_ms=100.0, workers=3, dispatch=dispatch, headroom=0.0, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(("dispatch", "load_qps"), [
    ("round-robin", 100.0), ("round-robin", 900.0), ("central-queue", 100.0),
    ("central-queue", 900.0)])
def test_figures_are_those_of_the_definitions(dispatch, load_qps):
    policy = _made(dispatch)
    fleet, plan = prepared_policy(policy)
    run = run_plan(fleet, plan, ConstantLoad(load_qps, 20_000.0), seed=3)
    found = in_steady_state(run, 500.0, 19_500.0, policy.max_queue)
    expected = _by_definition(run, 500.0, 19_500.0, policy.max_queue)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert rates(run, 500.0, 19_500.0) == (found["violation_rate"], found["effective_accuracy"])
    np.testing.assert_array_equal(earned(run), run.reward)
    assert load_qps < 500.0 or len(run.drop_ms) > 100


def _by_definition(
    run: Run, since_ms: float, until_ms: float, longest_queue: int
) -> dict[str, float]:
    arrived = (run.arrival_ms >= since_ms) & (run.arrival_ms < until_ms)
    in_time, reward = run.in_time[arrived], run.reward[arrived]
    response_ms = (run.answered_ms - run.arrival_ms)[arrived & run.answered]
    busy_ms = np.clip(run.finish_ms, since_ms, until_ms) - np.clip(
        run.start_ms, since_ms, until_ms)
    started = (run.start_ms >= since_ms) & (run.start_ms < until_ms)
    dropped = (run.drop_ms >= since_ms) & (run.drop_ms < until_ms)
    size = np.repeat(run.size[started], run.size[started])
    queued = np.append(run.queued[started], run.drop_queued[dropped])
    due_ms = run.arrival_ms + float(run.slo_ms[0])
    head_due_ms = np.array([due_ms[run.batch_of == batch].min()
                            for batch in np.flatnonzero(started)])
    slack_ms = np.append(head_due_ms - run.start_ms[started],
                         due_ms[run.drop_request[dropped]] - run.drop_ms[dropped])
    met = run.finish_ms[started] <= head_due_ms + 2.0 * SLACK_TOLERANCE_MS
    figures = {
        "violation_rate": 1.0 - in_time.mean(), "effective_accuracy": reward.mean(),
        "accuracy": reward.sum() / in_time.sum(), "response_mean_ms": response_ms.mean(),
        "utilisation": busy_ms.sum() / (until_ms - since_ms) / run.workers,
        "batch_size.mean": size.mean(), "batch_size.p50": _at(size, 0.5),
        "batch_size.p99": _at(size, 0.99), "queue_length.mean": queued.mean(),
        "queue_length.p50": _at(queued, 0.5), "queue_length.p99": _at(queued, 0.99),
        "full_queue_rate": (queued > longest_queue).mean(), "slack_ms.mean": slack_ms.mean(),
        "slack_ms.p50": np.quantile(slack_ms, 0.5), "slack_ms.p99": np.quantile(slack_ms, 0.99),
        "per_decision.violation_rate": 1.0 - met.sum() / len(queued),
        "per_decision.accuracy": run.accuracy[run.model[started][met]].mean()}
    figures |= {f"response_p{100 * level:.0f}_ms": np.quantile(response_ms, level)
                for level in LEVELS}
    served = np.bincount(np.repeat(run.model[started], run.size[started]),
                         minlength=len(run.models))
    return {name: float(value) for name, value in figures.items()} | {
        f"model_share.{name}": share for name, share in zip(
            run.models, (served / served.sum()).tolist(), strict=True)}


def _at(values: np.ndarray, level: float) -> float:
    """The least value that a share of all is at most."""
    return float(np.sort(values)[int(np.ceil(level * len(values))) - 1])
