"""Schedulers pass the checks that ramsis.testing offers, and the checks find what breaks them."""

from pathlib import Path
from typing import Any

import pytest

from ramsis.sim import SCHEDULERS, Scheduler, SchedulerSpec
from ramsis.testing import check_reader, check_scheduler

PARAMETERS = {"bentoml": "model=small", "clipper": "model=small", "fixed": "model=small",
              "infaas": "accuracy=0.7", "symphony": "model=small",
              "delay": "model=small"}
# Policies need a file, the agent an extra; the tests of the planner solve smaller programs. Second
# opinions have a compiled loop alone, and need confidences.
LEFT_OUT = {"policies", "rl", "planned", "fixed-threshold", "cascade-serve"}


@pytest.mark.parametrize("name", sorted(set(SCHEDULERS) - LEFT_OUT))
def test_schedulers_conform(name):
    check_scheduler(f"{name}:{PARAMETERS[name]}" if name in PARAMETERS else name)


class Oldest(Scheduler[Any]):
    """Serve the oldest request on any idle worker."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.queue: list[int] = []

    def on_arrival(self, request: int) -> None:
        self.queue.append(request)
        self.serve()

    def on_end(self, worker: int, batch: int) -> None:
        self.serve()

    def serve(self) -> None:
        for worker in self.engine.idle_workers():
            if self.queue:
                self.engine.run(worker, self.model(), [self.queue.pop(0)])

    def model(self) -> int:
        return 0


class Forgetful(Oldest):
    """Forget each tenth request."""

    def on_arrival(self, request: int) -> None:
        if request % 10:
            super().on_arrival(request)


class Clairvoyant(Oldest):
    """Choose a model by the number of requests to come."""

    def model(self) -> int:
        return int(len(self.engine.requests.model) > 200)


class Moody(Oldest):
    """Choose a model by the number of runs so far."""

    runs = 0

    def on_start(self) -> None:
        Moody.runs += 1

    def model(self) -> int:
        return Moody.runs % 2


@pytest.mark.parametrize(("kind", "rule"), [
    (Forgetful, "requests are left waiting"), (Clairvoyant, "have not arrived"),
    (Moody, "two runs of the same seed differ")])
def test_a_scheduler_that_breaks_a_rule_is_found(kind, rule):
    with pytest.raises(AssertionError, match=rule):
        check_scheduler(SchedulerSpec("own", kind, {}))


def whole(path: Path) -> None:
    path.read_bytes().decode()


def test_a_reader_that_raises_another_error_is_found(tmp_path):
    (tmp_path / "a.csv").write_text("é,1\n2,3\n")
    with pytest.raises(AssertionError, match="UnicodeDecodeError"):
        check_reader(whole, tmp_path / "a.csv", tmp_path / "damaged")
