"""When queries arrive."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ramsis.errors import InvalidValueError
from ramsis.sim import ClosedLoop, ConstantLoad, RateTrace, Recorded, Workload
from tests.arrivals.processes import Wrapped

WORKLOADS = [
    ConstantLoad(200.0, 5000.0),
    ConstantLoad(200.0, 5000.0, "fixed-rate"),
    ConstantLoad(200.0, 5000.0, "renewal:0.3"),
    ConstantLoad(200.0, 5000.0, "renewal:3"),
    RateTrace([0, 1000, 2000], [100.0, 0.0, 500.0]),
    RateTrace([0, 1000, 2000], [100.0, 0.0, 500.0], arrivals="renewal:2.5"),
    Recorded([5.0, 5.0, 9.0, 30.0]),
]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: type(w).__name__)
def test_arrivals_are_sorted_and_within_the_duration_and_the_seeds(workload):
    assert isinstance(workload, Workload)
    times = workload.arrivals_ms(rng(1))
    assert len(times)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < workload.duration_ms
    assert times.tolist() == workload.arrivals_ms(rng(1)).tolist()
    drawn = not isinstance(workload, Recorded) and workload.arrivals.name != "fixed-rate"
    assert (times.tolist() != workload.arrivals_ms(rng(2)).tolist()) == drawn


def test_a_fixed_rate_is_fixed():
    load = ConstantLoad(400.0, 10.0, "fixed-rate")
    assert load.arrivals_ms(rng()).tolist() == [0.0, 2.5, 5.0, 7.5]
    assert ConstantLoad(100.0, 5.0, "fixed-rate").arrivals_ms(rng()).tolist() == [0.0]


def test_a_trace_gives_each_step_its_load():
    trace = RateTrace([10.0, 20.0, 40.0], [50_000.0, 0.0, 20_000.0], 45.0)
    assert (trace.duration_ms, trace.peak_qps, trace.varies) == (35.0, 50_000.0, True)
    assert trace.load_qps == pytest.approx(1000.0 * 600 / 35.0)
    counts = np.array([
        np.histogram(trace.arrivals_ms(rng(seed)), [0.0, 10.0, 30.0, 35.0])[0]
        for seed in range(400)
    ])
    assert (counts[:, 1] == 0).all()
    for column, mean in ((0, 500.0), (2, 100.0)):
        test = stats.ttest_1samp(counts[:, column], mean)
        assert test.pvalue > 1e-4
        assert np.var(counts[:, column]) == pytest.approx(mean, rel=0.35)
    within = np.concatenate([trace.arrivals_ms(rng(seed)) for seed in range(50)])
    assert stats.kstest(within[within < 10.0] / 10.0, "uniform").pvalue > 1e-4


def test_an_over_dispersed_trace_has_the_loads_but_more_spread():
    trace = RateTrace([0.0, 500.0], [1000.0, 3000.0], 1000.0, arrivals="renewal:3")
    counts = [len(trace.arrivals_ms(rng(seed))) for seed in range(300)]
    assert np.mean(counts) == pytest.approx(2000.0, rel=0.02)
    assert np.var(counts) == pytest.approx(9 * 2000.0, rel=0.4)


class Pairs:
    """Two arrivals at once."""

    def __init__(self, load_qps: float) -> None:
        self.rate_per_ms = load_qps / 1000.0

    def sample(self, duration_ms: float, rng: np.random.Generator) -> np.ndarray:
        pairs = rng.poisson(self.rate_per_ms * duration_ms / 2)
        return np.repeat(np.sort(rng.uniform(0.0, duration_ms, pairs)), 2)


def test_a_process_with_sample_is_a_workload_and_can_drive_a_trace():
    workload = ConstantLoad(2000.0, 1000.0, Pairs)
    assert (workload.load_qps, workload.varies) == (2000.0, False)
    times = workload.arrivals_ms(rng())
    assert (times[::2] == times[1::2]).all()
    trace = RateTrace([0.0, 100.0], [1000.0, 9000.0], 200.0, Pairs)
    counts = [len(trace.arrivals_ms(rng(seed))) for seed in range(200)]
    assert np.mean(counts) == pytest.approx(1000.0, rel=0.02)
    paired = trace.arrivals_ms(rng())
    assert np.allclose(paired[::2], paired[1::2])
    assert trace.scaled(0.5).until(150.0).arrivals is trace.arrivals


def test_a_trace_of_one_rate_is_that_constant_load():
    for word in ("poisson", "fixed-rate", "renewal:2", "negative-binomial:4",
                 "mmpp:ratio=4,burst-ms=50,share=0.2"):
        trace = RateTrace([0.0], [1000.0], 5000.0, word)
        constant = ConstantLoad(1000.0, 5000.0, word)
        np.testing.assert_allclose(trace.arrivals_ms(rng(3)), constant.arrivals_ms(rng(3)),
                                   rtol=1e-12)


def test_poisson_arrivals_are_exponential_gaps_added_up():
    """The numbers of a seed, so that a comparison with older results stays one."""
    gaps = rng(5).exponential(1000.0 / 300.0, 2000)
    times = np.cumsum(gaps)
    found = ConstantLoad(300.0, 1000.0).arrivals_ms(rng(5))
    np.testing.assert_array_equal(found, times[times < 1000.0][: len(found)])
    assert len(found) == (times < 1000.0).sum()


@pytest.mark.parametrize("word", ["fixed-rate", "renewal:0.5"])
def test_a_load_is_exactly_what_was_asked_for(word):
    assert ConstantLoad(0.7, 10.0, word).load_qps == 0.7


def test_traces_are_scaled_and_cut():
    trace = RateTrace([0.0, 100.0, 200.0], [1.0, 2.0, 4.0])
    assert trace.scaled(2.0).rate_qps.tolist() == [2.0, 4.0, 8.0]
    cut = trace.until(150.0)
    assert (cut.duration_ms, cut.rate_qps.tolist()) == (150.0, [1.0, 2.0])
    assert trace.until(1e9).duration_ms == 300.0
    recorded = Recorded([100.0, 110.0, 130.0])
    assert recorded.times_ms.tolist() == [0.0, 10.0, 30.0]
    assert recorded.scaled(2.0).times_ms.tolist() == [0.0, 5.0, 15.0]
    assert recorded.scaled(2.0).load_qps == pytest.approx(2 * recorded.load_qps)
    assert recorded.until(20.0).times_ms.tolist() == [0.0, 10.0]
    assert recorded.duration_ms == 45.0


def test_the_peak_of_a_recording_is_that_of_its_busiest_second():
    assert Recorded([0, 900, 1000, 1100, 1200, 5000]).peak_qps == 4.0
    assert Recorded([0.0, 0.0], duration_ms=10.0).peak_qps == 200.0


def test_requests_at_one_instant_are_those_of_a_second():
    recorded = Recorded([7.0] * 500)
    assert (recorded.duration_ms, recorded.load_qps, recorded.peak_qps) == (1000.0, 500.0, 500.0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 50.0), st.floats(0.0, 2000.0)), min_size=1, max_size=20),
    st.integers(0, 99),
)
def test_any_trace_gives_arrivals_only_where_it_has_a_load(steps, seed):
    start = np.append(0.0, np.cumsum([length for length, _ in steps]))
    rates = np.array([rate for _, rate in steps])
    if not rates.any():
        return
    times = RateTrace(start[:-1], rates, start[-1]).arrivals_ms(rng(seed))
    step = np.searchsorted(start, times, side="right") - 1
    edge = np.isclose(times, start[step], atol=1e-6) | np.isclose(
        times, start[np.minimum(step + 1, len(steps))], atol=1e-6)
    assert ((rates[np.minimum(step, len(rates) - 1)] > 0) | edge).all()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: ConstantLoad(float("nan"), 1.0), "load_qps"),
    (lambda: ConstantLoad(1.0, float("inf")), "duration_ms"),
    (lambda: ConstantLoad(1e9, 1e6).arrivals_ms(rng()), "too many arrivals"),
    (lambda: ConstantLoad(1.0, 1.0, Wrapped), "cannot be drawn from"),
    (lambda: RateTrace([0], [1.0], 1.0, Wrapped), "cannot be drawn from"),
    (lambda: RateTrace([], []), "no trace"),
    (lambda: RateTrace([0, 1], [1.0]), "no trace"),
    (lambda: RateTrace([0, 2, 1], [1.0, 1.0, 1.0]), "entry 3: time goes back"),
    (lambda: RateTrace([0, 1], [1.0, -2.0]), "entry 2: rate is not a load"),
    (lambda: RateTrace([0, 1], [float("nan"), 2.0]), "entry 1: rate is not a load"),
    (lambda: RateTrace([0, float("nan")], [1.0, 2.0]), "entry 2: not a time"),
    (lambda: RateTrace([0, 1], [0.0, 0.0]), "empty trace"),
    (lambda: RateTrace([0, 1], [1.0, 1.0], 0.5), "end_ms"),
    (lambda: RateTrace([0, 1], [1.0, 1.0]).scaled(0.0), "factor"),
    (lambda: Recorded([]), "empty trace"),
    (lambda: Recorded([1.0, 0.5]), "entry 2: time goes back"),
    (lambda: Recorded([1.0, float("nan")]), "entry 2: not a time"),
    (lambda: ClosedLoop(0, 1.0, 1.0), "users"),
    (lambda: ClosedLoop(1, -1.0, 1.0), "think_ms"),
])
def test_bad_workloads_are_refused(make, words):
    with pytest.raises(InvalidValueError, match=words):
        make()
