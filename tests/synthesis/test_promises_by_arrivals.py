"""Promises against a replay of the policy's table, fed by draws of the process itself.

Each query is judged by its own deadline. The model of a worker counts a batch as late with its
earliest query (``by_head``), so it tells more violations than there are.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from ramsis.arrivals import Arrivals
from ramsis.errors import InvalidValueError
from ramsis.policy import Policy
from ramsis.synthesis import generate_policy
from ramsis.synthesis.simulated import simulated
from tests.policy.samples import tables
from tests.reference.round_robin import Replay, replay
from tests.slow import slow_after
from tests.synthesis.samples import plain as plain_document
from tests.synthesis.samples import settings, tiny_profile

_QUERIES = 1_000_000


@dataclass(frozen=True)
class Case:
    """A process and a load of the tiny profile, of which 4 workers can serve 1778 queries/s."""

    word: str
    load_qps: float

    def policy(self, word: str | None = None, late: str = "serve", price: float = 0.0) -> Policy:
        """The policy for this process, or another at the same load; by the paper's rule."""
        chosen = settings(arrivals=word or self.word, grid="fixed:50", max_queue=32,
                          late=late, violation_price=price)
        return generate_policy(tiny_profile(), self.load_qps, chosen)

    def replayed(self, policy: Policy) -> Replay:
        """What the policy does with arrivals drawn from this process."""
        process = Arrivals.parse(self.word)(self.load_qps)
        assert hasattr(process, "sample")
        arrivals = process.sample(_QUERIES / process.rate_per_ms, np.random.default_rng(11))
        arrivals *= len(arrivals) / _QUERIES  # bursts moved the load by 1 %, and accuracy by 0.003
        return replay(
            arrivals, workers=policy.workers, slo_ms=policy.slo_ms,
            slack_ms=policy.slack_ms.tolist(), table=tables(policy)[0].tolist(),
            latency_ms=policy.latency_ms.tolist(), accuracy=policy.accuracy.tolist(),
            fastest=int(policy.actions[policy.longer_queue, 0]),
        )


CASES = [
    Case("poisson", 1000.0),
    Case("negative-binomial:4", 400.0),
    Case("negative-binomial:12", 700.0),
    Case("mmpp:ratio=4,burst-ms=500,share=0.2", 700.0),
    Case("mmpp:ratio=6,burst-ms=50,share=0.2", 500.0),
    Case("mmpp:ratio=6,burst-ms=100,share=0.2", 600.0),
]


@pytest.mark.parametrize("case", slow_after(2, [CASES[1], CASES[3], CASES[0], CASES[2],
                                                *CASES[4:]]),
                         ids=lambda case: f"{case.word}@{case.load_qps:g}")
def test_a_policy_delivers_what_it_promises_under_its_own_arrivals(case):
    policy = case.policy()
    promised, seen = policy.expectations, case.replayed(policy)
    noise = 2.0 * policy.replay.violation_half_width  # of the promise, and of the replay here
    assert promised.violation_rate == pytest.approx(
        seen.violation_rate, rel=0.2, abs=max(3e-4, noise))
    assert promised.effective_accuracy == pytest.approx(seen.effective_accuracy, abs=0.0025)
    assert seen.violation_rate <= seen.violation_rate_by_head


@pytest.mark.parametrize("case", slow_after(1, CASES[3:]),
                         ids=lambda case: f"{case.word}@{case.load_qps:g}")
def test_policies_that_drop_in_bursts_deliver_what_they_promise(case):
    policy = case.policy(late="drop")
    seen = simulated(policy, queries=200_000, runs=4, seed=0)
    promised = policy.expectations
    assert promised.effective_accuracy == pytest.approx(seen.effective_accuracy, abs=0.015)
    assert promised.violation_rate == pytest.approx(seen.violation_rate, rel=0.3, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "price"), [
    (CASES[2], 0.0), (CASES[3], 0.0), (CASES[3], 10.0), (CASES[4], 1.0), (CASES[5], 1.0)],
    ids=lambda one: f"{one.word}@{one.load_qps:g}" if isinstance(one, Case) else str(one))
def test_it_earns_no_less_than_the_policy_for_poisson_arrivals(case, price):
    """Effective accuracy less the price of violations; runs differ by .002."""
    own, other = case.replayed(case.policy(price=price)), case.replayed(
        case.policy("poisson", price=price))
    gain = (own.effective_accuracy - other.effective_accuracy
            - price * (own.violation_rate - other.violation_rate))
    assert gain >= -0.003
    if case.word == "mmpp:ratio=4,burst-ms=500,share=0.2":
        assert gain >= 0.008  # a shorter queue pays in bursts of many service times


@pytest.mark.parametrize("word", ["negative-binomial:1", "mmpp:ratio=1,burst-ms=9,share=0.5"])
def test_without_overdispersion_it_is_the_poisson_policy(word):
    plain, same = Case("poisson", 700.0).policy(), Case(word, 700.0).policy()
    assert plain_document(same) == plain_document(plain)


@pytest.mark.parametrize(
    "word", ["negative-binomial:1.001", "mmpp:ratio=1.001,burst-ms=100,share=0.5"]
)
def test_near_no_overdispersion_the_promise_is_near_that_for_poisson(word):
    plain, near = Case("poisson", 900.0).policy(), Case(word, 900.0).policy()
    assert near.expectations.effective_accuracy == pytest.approx(
        plain.expectations.effective_accuracy, abs=2e-4)
    assert near.expectations.violation_rate == pytest.approx(
        plain.expectations.violation_rate, abs=1e-4)


@pytest.mark.parametrize("burst_ms", slow_after(1, [2000, 10_000]))
def test_runs_see_many_bursts(burst_ms):
    """Runs of 25,000 requests would mostly be quiet, or one burst, and agree on what is not so."""
    policy = generate_policy(tiny_profile(), 900.0, settings(
        arrivals=f"mmpp:ratio=3,burst-ms={burst_ms},share=0.2"))
    asked = policy.replay.runs * 20 * 0.9 * burst_ms / 0.2
    assert policy.replay.queries >= 0.99 * min(asked, 1e7)


def test_bursts_that_come_too_seldom_are_refused():
    with pytest.raises(InvalidValueError, match="burst-ms / share: bursts come too seldom"):
        generate_policy(tiny_profile(), 900.0, settings(
            arrivals="mmpp:ratio=3,burst-ms=1e6,share=0.2"))
