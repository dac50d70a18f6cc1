"""The server measures what serving takes besides the model, and takes it from every slack."""

from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.runtime import DecisionTable, Selector, set_of_selectors
from ramsis.runtime.dispatcher import Dispatcher
from tests.serving.servers import make, profile, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.policy import write_set  # noqa: E402
from ramsis.policy.policy_set import set_of  # noqa: E402
from ramsis.serving.overhead import (  # noqa: E402
    OverheadParts,
    OverheadWatch,
    answers_ms,
)
from ramsis.serving.policies import Expected  # noqa: E402
from ramsis.serving.tensors import TensorSpec  # noqa: E402
from ramsis.synthesis import SynthesisSettings, generate_policy  # noqa: E402


def watch(most_ms: float = 1000.0) -> OverheadWatch:
    return OverheadWatch(lambda variant, run_as: 10.0 * run_as if variant == "m" else None,
                         lambda: most_ms)


def test_the_overhead_is_the_95th_percentile_of_the_sum_of_independent_parts():
    rng, found = np.random.default_rng(3), watch()
    batch, transport, answer = (scale * rng.exponential(size=512) for scale in (2.0, 0.7, 1.3))
    for longer_ms, lag_ms, after_ms in zip(batch, transport, answer, strict=True):
        found.batch("m", 2, 20.0 + longer_ms, 20.0 + longer_ms - lag_ms)
        found.answered(after_ms)
    drawn = [scale * rng.exponential(size=100_000) for scale in (2.0, 0.7, 1.3)]
    parts = found.estimate()
    assert parts.overhead_ms == pytest.approx(np.quantile(sum(drawn), 0.95), rel=0.1)
    assert parts.overhead_ms < parts.arrival_ms + parts.batch_ms + parts.answer_ms
    assert parts.batch_ms == pytest.approx(np.quantile(batch, 0.95))


def test_what_slowness_explains_is_no_overhead():
    found = watch()
    for _ in range(100):
        found.batch("m", 2, 26.0, 26.0)
    assert found.estimate().overhead_ms == pytest.approx(6.0)
    assert found.estimate(1.2).overhead_ms == pytest.approx(2.0)
    assert found.estimate(1.3).overhead_ms == pytest.approx(0.0, abs=1e-9)


def test_the_slowness_is_that_of_the_last_batches_that_the_policies_know():
    found = watch()
    for _ in range(100):
        found.batch("m", 1, 5.0, 5.0)
    for k in range(64):
        found.batch("m", 1 + k % 2, 13.0 * (1 + k % 2), 1.0)
    assert found.slowness(lambda variant, run_as: 10.0 * run_as) == pytest.approx(1.3)
    assert found.slowness(lambda variant, run_as: None) == 1.0
    few = watch()
    for _ in range(15):
        few.batch("m", 1, 30.0, 30.0)
    assert few.slowness(lambda variant, run_as: 10.0) == 1.0


def test_the_overhead_is_never_negative_nor_above_its_limit():
    assert watch().estimate().overhead_ms == 0.0
    fast, slow = watch(), watch(most_ms=12.5)
    fast.batch("m", 1, 3.0, 3.0)  # a profile of a busy machine
    slow.batch("m", 1, 103.0, 103.0)
    assert fast.estimate().overhead_ms == 0.0
    assert slow.estimate().overhead_ms == 12.5


def test_a_few_hiccups_and_batches_that_no_policy_knows_do_not_count():
    found = watch()
    for number in range(100):
        found.batch("m", 1, 900.0 if number < 2 else 11.7, 11.7)
        found.batch("other", 1, 5000.0, 1.0)
    assert found.estimate().overhead_ms == pytest.approx(1.7)


def test_old_batches_are_forgotten():
    found = watch()
    for _ in range(600):
        found.batch("m", 1, 90.0, 90.0)
    for _ in range(512):
        found.batch("m", 1, 13.0, 13.0)
    assert found.estimate().overhead_ms == pytest.approx(3.0)


def test_each_answer_of_a_batch_waits_for_those_before_it():
    found = answers_ms("sums", [TensorSpec("sum", "FP32", ())], 4)
    assert found == pytest.approx([found[0] * place for place in (1, 2, 3, 4)])
    assert 0.0 < found[0] < 50.0


def test_what_a_policy_allows_for_is_not_taken_twice():
    terms: dict[str, Any] = {"slo_ms": 100.0, "workers": 1, "grid": "fixed:20", "max_queue": 8}
    plain, allowing = (Expected(set_of([generate_policy(
        profile(), 20.0, SynthesisSettings(**terms, overhead_ms=ms))]).levels[0])
        for ms in (0.0, 3.5))
    assert plain.stated_ms("slow", 2, 0.95) == pytest.approx(9.0)
    assert allowing.stated_ms("slow", 2, 0.95) == pytest.approx(12.5)
    assert plain.stated_ms("slow", 99, 0.95) is None


def test_a_dispatcher_takes_another_overhead_from_what_waits_too():
    """A request waits until its slack is 40 ms; with more overhead it has less."""
    table = DecisionTable(
        models=("m",), slo_ms=100.0, load_qps=50.0, workers=1, dispatch="round-robin",
        arrivals="poisson", idle=(0, 1), queued=(0, 1), slack_ms=(0.0, 40.0),
        actions=[[0, 1]], rows=[[0, 0, 1, -1]], row_of=[[0]], longer_queue=0)
    dispatcher: Dispatcher[str] = Dispatcher(set_of_selectors([Selector(table)]))
    assert not dispatcher.arrive(0.0, ["a"], 100.0).starts
    assert dispatcher.wake_ms == pytest.approx(60.0, abs=1e-3)
    assert not dispatcher.take_overhead(1.0, 10.0).starts
    assert dispatcher.wake_ms == pytest.approx(50.0, abs=1e-3)
    started = dispatcher.take_overhead(2.0, 70.0).starts
    assert [start.requests for start in started] == [["a"]]
    assert dispatcher.overhead_ms == 70.0
    for bad in (-1.0, inf):
        with pytest.raises(InvalidValueError, match="overhead_ms"):
            dispatcher.take_overhead(3.0, bad)


def test_the_queues_are_asked_only_where_the_overhead_has_changed():
    from ramsis.serving.server import Server

    taken = list[float]()
    dispatcher = SimpleNamespace(overhead_ms=0.0, slowness=1.0)

    def take(overhead_ms: float) -> None:
        taken.append(overhead_ms)
        dispatcher.overhead_ms = overhead_ms

    estimates = iter([0.02, 2.0, 2.06, 1.95, 2.11, 2.2, 0.0, 0.05])
    server = cast(Any, SimpleNamespace(
        overhead=SimpleNamespace(
            estimate=lambda slowness: OverheadParts(next(estimates), 0.0, 0.0, 0.0)),
        front=SimpleNamespace(dispatcher=dispatcher, take_overhead=take), ready=False,
        _overhead_logged_ms=-inf, log=lambda event, **fields: None))
    Server._take_overhead(server)
    server.ready = True
    for _ in range(7):
        Server._take_overhead(server)
    assert taken == [0.02, 2.0, 2.11, 0.0]


def test_a_slowness_is_taken_where_it_has_changed_and_said_where_it_has_changed_much():
    from ramsis.serving.server import Server

    taken, said = list[float](), list[float]()
    dispatcher = SimpleNamespace(slowness=1.0, level=SimpleNamespace(load_qps=100.0, slowness=1.0))

    def take(slowness: float) -> None:
        taken.append(slowness)
        dispatcher.slowness = slowness

    found = iter([1.04, 1.06, 1.02, 1.1, 1.3, 1.35, 0.7, 1.0])
    server = cast(Any, SimpleNamespace(
        overhead=SimpleNamespace(slowness=lambda mean_ms: next(found)), _mean_ms=None,
        front=SimpleNamespace(dispatcher=dispatcher, take_slowness=take), _slowness_logged=1.0,
        _sizes=None,
        policies=SimpleNamespace(worker_types={"all": 1}),
        log=lambda event, times, **level: said.append(times)))
    for _ in range(8):
        Server._take_slowness(server)
    assert taken == [1.06, 1.3, 0.7, 1.0]
    assert said == [1.3, 0.7, 1.0]
    server.policies.worker_types = {"old": 1, "new": 1}
    server.overhead.slowness = lambda mean_ms: 3.0
    Server._take_slowness(server)
    assert dispatcher.slowness == 1.0


@pytest.mark.slow
def test_promises_are_kept_by_default_where_batches_take_longer_than_profiled(tmp_path):
    """The accurate model is half as fast as its profile says, and would be late."""
    folder = make(tmp_path, loads=(2.0,), slo_ms=1000.0)
    source = (folder / "summing.py").read_text()
    (folder / "summing.py").write_text(source.replace("(0.004 + 0.001 * len(x))", "1.3"))
    fast, slow = profile().models
    slow = replace(slow, batches=tuple(replace(one, p95_ms=650.0 + one.batch)
                                       for one in slow.batches))
    write_set(folder / "policies", set_of([generate_policy(
        replace(profile(), models=(fast, slow)), 2.0, SynthesisSettings(
            slo_ms=1000.0, grid="fixed:20", max_queue=8, workers=1, late="drop"))]),
        created_by="tests")

    def answered(*options: str) -> tuple[str, bool, float]:
        with running(folder, *options) as server:
            status, document = server.infer([[1, 2, 3]])
            assert status == 200
            said = document["parameters"]
            return said["variant"], said["in_time"], server.metric("ramsis_overhead_ms")

    assert answered("--overhead-ms", "0") == ("slow", False, 0.0)
    variant, in_time, overhead_ms = answered()
    assert (variant, in_time) == ("fast", True)
    assert overhead_ms == 500.0  # half of the SLO
    assert answered("--overhead-ms", "2.5")[2] == 2.5
