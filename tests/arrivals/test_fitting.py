"""The fit names the process that made a trace, and says how well it fits."""

import numpy as np
import pytest

from ramsis.arrivals import Arrivals, MarkovModulated, NegativeBinomial
from ramsis.arrivals.fitting import dispersion_by_window, fit_trace
from ramsis.arrivals.timestamps import read_timestamps
from ramsis.errors import InvalidValueError
from tests.slow import slow_after

KINDS = ("poisson", "negative-binomial", "mmpp")


def drawn_word(kind: str, rng: np.random.Generator) -> str:
    """A process of the kind with parameters drawn over the range of interest."""
    if kind == "negative-binomial":
        return f"{kind}:{rng.uniform(1.5, 16.0)}"
    if kind == "mmpp":
        return (f"mmpp:ratio={rng.uniform(3.0, 12.0)},burst-ms={rng.uniform(50.0, 2000.0)},"
                f"share={rng.uniform(0.1, 0.4)}")
    return kind


def picked(kind: str, traces: int, seed: int) -> int:
    """How many drawn traces of 3000 requests or so the fit takes for what they are."""
    rng = np.random.default_rng(seed)
    right = 0
    for _ in range(traces):
        load = rng.uniform(50.0, 500.0)
        process = Arrivals.parse(drawn_word(kind, rng))(load)
        assert hasattr(process, "sample")
        times = process.sample(3000 / process.rate_per_ms, rng)
        right += fit_trace(times).best.word.partition(":")[0] == kind
    return right


@pytest.mark.parametrize(("traces", "right", "seed"), slow_after(1, [(5, 4, 1), (20, 18, 2)]))
@pytest.mark.parametrize("kind", KINDS)
def test_the_fit_tells_the_processes_apart(kind, traces, right, seed):
    assert picked(kind, traces, seed) >= right


def test_parameters_are_found_again():
    rng = np.random.default_rng(5)
    clumped = fit_trace(NegativeBinomial(200.0, 5.0).sample(100_000.0, rng)).best
    assert isinstance(clumped.process, NegativeBinomial)
    assert clumped.process.dispersion == pytest.approx(5.0, rel=0.1)
    truth = MarkovModulated(200.0, 6.0, 300.0, 0.2)
    found = fit_trace(truth.sample(200_000.0, rng))
    process = found.best.process
    assert isinstance(process, MarkovModulated)
    assert process.ratio == pytest.approx(6.0, rel=0.15)
    assert process.burst_ms == pytest.approx(300.0, rel=0.3)
    assert process.share == pytest.approx(0.2, rel=0.3)
    assert Arrivals.parse(found.best.word)(200.0).rate_per_ms == pytest.approx(0.2)
    assert found.best.p_value > 0.001
    assert all(fit.p_value < 1e-6 for fit in found.fits[1:])


def test_dispersion_is_one_for_poisson_and_that_of_the_counts_for_clumps():
    rng = np.random.default_rng(6)
    windows = np.array([5.0, 50.0])
    plain = Arrivals.parse("poisson")(1000.0)
    assert hasattr(plain, "sample")
    found = dispersion_by_window(plain.sample(50_000.0, rng), windows)
    np.testing.assert_allclose(found, 1.0, atol=0.2)
    pairs = np.repeat(plain.sample(50_000.0, rng), 2)
    np.testing.assert_allclose(dispersion_by_window(pairs, windows), 2.0, atol=0.4)


def test_a_coarse_clock_is_not_taken_for_clumps():
    """Timestamps in whole 10 ms of a Poisson process with five requests in each."""
    times = Arrivals.parse("poisson")(500.0)
    assert hasattr(times, "sample")
    exact = times.sample(20_000.0, np.random.default_rng(7))
    assert fit_trace(np.floor(exact / 10.0) * 10.0).best.word == "poisson"


def test_where_the_trace_begins_does_not_matter():
    times = NegativeBinomial(100.0, 3.0).sample(20_000.0, np.random.default_rng(9))
    assert fit_trace(times).best.word == fit_trace(times + 1e6).best.word


@pytest.mark.parametrize("times", [[], [1.0] * 50, list(range(50))])
def test_too_few_timestamps_are_refused(times):
    with pytest.raises(InvalidValueError, match="too few timestamps"):
        fit_trace(np.array(times, dtype=float))


def test_equal_timestamps_are_refused_as_such():
    with pytest.raises(InvalidValueError, match=r"all timestamps are equal: got 500"):
        fit_trace(np.full(500, 7.25))


def test_the_azure_trace_is_bursty_at_every_window(reference_dir):
    found = fit_trace(read_timestamps(reference_dir / "azure_llm_code_trace.csv"))
    assert found.best.word.startswith("mmpp:")
    assert found.rate_qps == pytest.approx(2.566, rel=1e-3)
    assert (found.dispersion > 5).all()
    assert found.best.p_value < 0.01  # and two modes are not all of it
