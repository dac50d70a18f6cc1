"""User-defined arrival processes: callables in modules that the user names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ramsis.arrivals.process import ArrivalProcess, ProcessWithRate, Sampler
from ramsis.errors import InvalidValueError
from ramsis.plugins import blamed, own

_RATE_TOLERANCE = 1e-9


def maker_of(text: str) -> Callable[..., Any]:
    """Import the callable ``package.module:name``."""
    maker = own(text, "arrival process", where="arrivals", error=InvalidValueError,
                option="--arrivals")
    if not callable(maker):
        raise InvalidValueError("arrival process is not callable", where="arrivals", value=text,
                                allowed="a callable that takes load_qps")
    checked_maker: Callable[..., Any] = maker
    return checked_maker


def made_by(
    maker: Callable[..., Any], name: str, parameters: Mapping[str, Any], load_qps: float
) -> ProcessWithRate:
    """Create a process by calling a user's callable; refuse one without the load's rate."""
    with blamed(f"arrival process {name} failed", InvalidValueError):
        try:
            process = maker(load_qps, **parameters)
        except TypeError as error:
            takes = ", ".join(["load_qps", *parameters])
            raise InvalidValueError(f"cannot make an arrival process ({error})", where="arrivals",
                                    value=name,
                                    allowed=f"a callable that takes {takes}") from error
    if not isinstance(process, ArrivalProcess | Sampler):
        raise InvalidValueError(
            "not an arrival process", where=f"arrivals {name}", value=type(process).__name__,
            allowed="an object with rate_per_ms, and log_pf(count, interval_ms) or "
            "sample(duration_ms, rng)")
    wanted = load_qps / 1000.0
    if not abs(process.rate_per_ms - wanted) <= _RATE_TOLERANCE * wanted:
        raise InvalidValueError("the process does not have the rate of its load",
                                where=f"arrivals {name}: rate_per_ms", value=process.rate_per_ms,
                                allowed=f"{wanted:.10g}, a thousandth of {load_qps:g} QPS")
    return process
