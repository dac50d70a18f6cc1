"""When a promise stays the model's, and what is never passed over in silence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.arrivals import Poisson
from ramsis.errors import InvalidValueError
from ramsis.plugins import trusting
from ramsis.policy import Policy
from ramsis.synthesis import generate_policy
from tests.arrivals.processes import Wrapped
from tests.synthesis.samples import settings, tiny_profile


@dataclass(frozen=True)
class Sampled(Wrapped):
    """Poisson arrivals that can be drawn."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        return Poisson(self.load_qps).sample(duration_ms, rng)


@dataclass(frozen=True)
class Failing(Wrapped):
    """A process whose draws fail."""

    def sample(self, duration_ms: float, rng: np.random.Generator) -> FloatArray:
        raise InvalidValueError("no such day", where="calendar")


def generated(process: str) -> Policy:
    name = f"{__name__}:{process}"
    with trusting([name]):
        return generate_policy(tiny_profile(), 50.0, settings(arrivals=name))


@pytest.mark.parametrize(("name", "measured"), [("Wrapped", False), ("Sampled", True)])
def test_arrivals_that_cannot_be_drawn_leave_the_promise_of_the_model(
    name: str, measured: bool
) -> None:
    policy = generated(name)
    assert (policy.replay is not None) == measured


def test_an_error_of_the_process_is_not_swallowed() -> None:
    with pytest.raises(InvalidValueError, match="calendar: no such day"):
        generated("Failing")


def test_a_dispatch_without_a_compiled_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ramsis.sim.schedulers.policies.KERNELS", ())
    with pytest.raises(InvalidValueError, match="no compiled simulation"):
        generate_policy(tiny_profile(), 50.0, settings())
