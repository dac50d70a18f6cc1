"""A recorded trace as an arrival process."""


import numpy as np
import pytest

from ramsis.arrivals import Arrivals
from ramsis.errors import InputFileError, InvalidValueError


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("time_ms\n" + "".join(f"{t}\n" for t in (0, 1, 2, 50, 51, 90)))
    return path


def test_a_round_has_every_gap_once_stretched_to_the_load(trace):
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


def test_another_trace_than_the_named_one_is_refused(trace):
    description = Arrivals.parse(f"trace:{trace}")(5.0).describe()  # type: ignore[attr-defined]
    trace.write_text(trace.read_text() + "95\n")
    with pytest.raises(InputFileError, match="not the trace that is named"):
        Arrivals.of(description)
    with pytest.raises(InvalidValueError, match="wrong parameters of an arrival process"):
        Arrivals.of({"process": "trace", "file": 3, "requests": 6, "digest": ""})


def test_loads_and_missing_files_are_refused():
    with pytest.raises(InvalidValueError, match="holds loads, and no times of requests"):
        Arrivals.parse("trace:spikes")
    with pytest.raises(InputFileError, match=r"no-such\.csv"):
        Arrivals.parse("trace:no-such.csv")


def test_requests_keep_their_sizes_round_and_round(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("time_ms,tokens\n" + "".join(
        f"{t},{size}\n" for t, size in ((0, 1), (1, 2), (2, 3), (50, 4), (51, 5), (90, 6))))
    plain = Arrivals.parse(f"trace:{path}")
    assert plain.with_sizes_of(tmp_path / "other.csv") is plain
    assert Arrivals.parse("poisson").with_sizes_of(path).name == "poisson"
    arrivals = plain.with_sizes_of(path)
    process = arrivals(100.0)
    assert Arrivals.of(process.describe()) == arrivals != plain  # type: ignore[attr-defined]
    times, sizes = process.sample_sized(150.0, np.random.default_rng(1))  # type: ignore[attr-defined]
    assert times.tolist() == plain.drawn(100.0).sample(150.0, np.random.default_rng(1)).tolist()
    assert len(times) == len(sizes) == 15
    assert (np.diff(sizes) % 6 == 1).all()
    # The gap before the fourth request and that before the sixth are the longest.
    gaps = dict(zip(sizes[1:7].tolist(), np.diff(times)[:6].tolist(), strict=True))
    assert sorted(gaps, key=gaps.__getitem__)[-2:] == [6, 4]
    with pytest.raises(InputFileError, match="words"):
        plain.with_sizes_of(path, "words")
    description = process.describe()  # type: ignore[attr-defined]
    path.write_text(path.read_text().replace("51,5", "51,7"))
    with pytest.raises(InputFileError, match="not the trace that is named"):
        Arrivals.of(description)
