"""The lookup of second opinions does what the rule in plain Python does."""

from collections import deque
from heapq import heappop, heappush
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.runtime.cascade import Keep, SecondOpinions, WaitForEither, cascade_table
from ramsis.runtime.decisions import DROP, Decision
from ramsis.runtime.table import SLACK_TOLERANCE_MS
from ramsis.verify.cascade import play
from tests.runtime.cascades import MODELS, SLO_MS, drawn_document, selector_of


def played(
    document: dict[str, Any], came_ms: list[float], confidence: list[float]
) -> list[tuple[float, bool]]:
    """When each request is answered, and whether by a second opinion: a loop on the lookup."""
    rule = selector_of(document).cascade
    assert rule is not None
    times_ms = {model["name"]: model["latency_ms"] for model in document["models"]}
    fresh, unsure, idle = deque[int](), deque[int](), document["workers"]
    ends: list[tuple[float, int, list[int], Decision]] = []
    result, batches, arrived, again_ms = [(inf, False)] * len(came_ms), 0, 0, inf

    def slack_ms(queue: deque[int]) -> float:
        return came_ms[queue[0]] + SLO_MS - now_ms if queue else nan

    while True:
        next_ms = came_ms[arrived] if arrived < len(came_ms) else inf
        end_ms = ends[0][0] if ends else inf
        now_ms = min(next_ms, end_ms, again_ms)
        if now_ms == inf:
            return result
        if end_ms == now_ms:
            _, _, batch, decision = heappop(ends)
            idle += 1
            level = rule.level(len(fresh), len(unsure))
            for request in batch:
                due_ms = came_ms[request] + SLO_MS
                if decision.second:
                    in_time = now_ms <= due_ms + SLACK_TOLERANCE_MS
                    result[request] = (now_ms, True) if in_time else (due_ms, False)
                else:
                    result[request] = now_ms, False
                    if (rule.unsure(level, decision.model, confidence[request])
                            and now_ms < due_ms):
                        unsure.append(request)
            unsure = deque(sorted(unsure))  # by deadline
        elif next_ms == now_ms:
            fresh.append(arrived)
            arrived += 1
        again_ms = inf
        level = None
        while idle and (fresh or unsure):
            answer = rule(len(fresh), slack_ms(fresh), len(unsure), slack_ms(unsure), level)
            level = None
            if isinstance(answer, Decision):
                queue = unsure if answer.second else fresh
                batch = [queue.popleft() for _ in range(answer.batch)]
                heappush(ends, (now_ms + times_ms[answer.model][answer.batch - 1], batches, batch,
                                answer))
                batches, idle = batches + 1, idle - 1
            elif answer is DROP:
                fresh.popleft()
            elif isinstance(answer, Keep):
                level = answer.level
                request = unsure.popleft()
                result[request] = min(now_ms, came_ms[request] + SLO_MS), False
            else:
                assert isinstance(answer, WaitForEither)
                wakes = [now_ms + slack_ms(queue) - wake for queue, wake in (
                    (fresh, answer.fresh_ms), (unsure, answer.unsure_ms)) if queue]
                again_ms = max(min(wakes), now_ms + SLACK_TOLERANCE_MS)
                break


@pytest.mark.parametrize("seed", range(12))
def test_a_loop_on_the_lookup_answers_as_the_rule_in_plain_python(seed):
    rng = np.random.default_rng(seed)
    document = drawn_document(rng, workers=int(rng.integers(1, 4)))
    came_ms = np.cumsum(rng.exponential(1000.0 / rng.uniform(80.0, 600.0), 1500))
    confidence = rng.random(len(came_ms))
    expected = play(document, came_ms, rng, confidence)
    answers = played(document, came_ms.tolist(), confidence.tolist())
    assert [second for _, second in answers] == [answer.second for answer in expected]
    np.testing.assert_allclose([time_ms for time_ms, _ in answers],
                               [answer.answered_ms for answer in expected], rtol=0, atol=1e-9)


def test_drawn_rules_give_all_kinds_of_answers():
    """Else the comparison would compare little."""
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(20):
        rule = selector_of(drawn_document(rng, 2)).cascade
        assert rule is not None
        for _ in range(200):
            kinds.add(type(rule(int(rng.integers(0, 12)), rng.uniform(-5.0, 65.0),
                                int(rng.integers(0, 12)), rng.uniform(-5.0, 65.0))))
    assert kinds == {Decision, SecondOpinions, type(DROP), Keep, WaitForEither}


def test_confidence_at_a_threshold_lies_above_it():
    document = drawn_document(np.random.default_rng(0), 1)
    document["cascade"]["unsure_bins"] = [[2, 8, 8]] * len(document["cascade"]["gather"])
    rule = selector_of(document).cascade
    sure = [rule.unsure(0, "m0", value) for value in (-inf, 0.2499, 0.25, 0.9, nan)]
    assert sure == [True, True, False, False, False]
    assert rule.unsure(0, "m1", 1e300)  # all bins are unsure
    assert not rule.unsure(0, "m2", -1.0)  # it has no confidence
    assert not rule.unsure(0, "another", -1.0)


@pytest.mark.parametrize("slack_ms", [inf, -inf, nan, 1e308, -0.0])
@pytest.mark.parametrize("levels", [0.0, 1e308])
def test_a_lookup_never_fails(slack_ms, levels):
    document = drawn_document(np.random.default_rng(1), 1)
    document["cascade"].update(levels_per_fresh=levels, levels_per_unsure=levels)
    rule = selector_of(document).cascade
    assert rule is not None
    for fresh in (0, 1, 10**6):
        for unsure in (0, 1, 10**6):
            rule(fresh, slack_ms, unsure, slack_ms)
            rule.when_slow(1.7, fresh, slack_ms, unsure, slack_ms)
            assert 0 <= rule.level(fresh, unsure) < len(document["cascade"]["gather"])


def test_slow_service_runs_no_batch_of_more_requests_than_wait():
    rng = np.random.default_rng(2)
    rule = selector_of(drawn_document(rng, 1)).cascade
    assert rule is not None
    for fresh in range(1, 9):
        for slack_ms in np.linspace(-5.0, 60.0, 60).tolist():
            answer = rule.when_slow(2.0, fresh, slack_ms, 0, 0.0)
            assert not isinstance(answer, Decision) or answer.batch <= fresh


def test_the_runtime_refuses_what_a_lookup_could_fail_on():
    document = drawn_document(np.random.default_rng(3), 1)["cascade"]
    document["index"][0][0] = document["index"][0][-1]
    document["rows"][document["index"][0][-1]] = [0, 5]
    with pytest.raises(InputFileError, match=r"cascade.index\[0\]\[0\]: a batch of more requests"):
        cascade_table(Fields(document, "drawn", "cascade"), MODELS)
