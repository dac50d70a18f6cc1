"""A recorded trace as an arrival process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ramsis.arrivals import Arrivals
from ramsis.errors import InputFileError, InvalidValueError


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text("time_ms\n" + "".join(f"{t}\n" for t in (0, 1, 2, 50, 51, 90)))
    return path


def test_a_round_has_every_gap_once_stretched_to_the_load(trace: Path) -> None:
    arrivals = Arrivals.parse(f"trace:{trace}")
    assert Arrivals.of(arrivals(5.0).describe()) == arrivals  # type: ignore[attr-defined]
    assert arrivals.text == f"trace:{trace}"
    period_ms = 6 / 100.0 * 1000.0
    times = arrivals.drawn(100.0).sample(10 * period_ms, np.random.default_rng(1))
    assert len(times) == 60
    assert (np.diff(times) >= 0.0).all()
    assert times[-1] < 10 * period_ms
    gaps = np.diff(times)
    assert np.sort(gaps[:6]) == pytest.approx(np.sort(gaps[6:12]))
    assert gaps.min() == pytest.approx(gaps.max() / 48.0)


def test_another_trace_than_the_named_one_is_refused(trace: Path) -> None:
    description = Arrivals.parse(f"trace:{trace}")(5.0).describe()  # type: ignore[attr-defined]
    trace.write_text(trace.read_text() + "95\n")
    with pytest.raises(InputFileError, match="not the trace that is named"):
        Arrivals.of(description)
    with pytest.raises(InvalidValueError, match="wrong parameters of an arrival process"):
        Arrivals.of({"process": "trace", "file": 3, "requests": 6, "digest": ""})


def test_loads_and_missing_files_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="holds loads, and no times of requests"):
        Arrivals.parse("trace:spikes")
    with pytest.raises(InputFileError, match=r"no-such\.csv"):
        Arrivals.parse("trace:no-such.csv")
