"""The probability of k arrivals, and the plug for a process of one's own."""

import math
import sys

import numpy as np
import pytest

from ramsis.arrivals import (
    ArrivalProcess,
    Arrivals,
    MarkovModulated,
    NegativeBinomial,
    Poisson,
    describe_process,
)
from ramsis.errors import InvalidValueError
from ramsis.plugins import trust
from tests.arrivals.processes import Described, Outer, Wrapped
from tests.reference.poisson import log_factorial, log_poisson

HERE = "tests.arrivals.processes"
trust("ramsis.arrivals:Poisson", ":Wrapped", ".processes:Wrapped",
      "tests.arrivals.nowhere:Wrapped", *(f"{HERE}:{name}" for name in (
          "Wrapped", "Outer.Inner", "Nothing", "Outer.Nothing", "NOT_CALLABLE", "no_argument",
          "not_a_process", "Described", "twice_the_load")))


def test_the_two_ways_to_a_log_factorial_agree_where_they_meet():
    by_series = float(log_factorial(1001))
    assert by_series == pytest.approx(float(log_factorial(1000)) + math.log(1001), rel=1e-15)


@pytest.mark.parametrize("mean", [1e-9, 0.5, 40.0, 1e3, 3.3e4, 1e5])
def test_log_pf_is_within_1e_9_of_the_truth(mean):
    """Far tails included, as the phases of K = 1000 workers and 33 requests need them."""
    spread = 10 * math.sqrt(mean)
    counts = sorted({0, 1, 2, 999, 1000, 1001, 32_999, 33_999, 100_000,
                     *(max(0, int(mean + x * spread)) for x in (-1, -0.1, 0, 0.1, 1))})
    process = Poisson(load_qps=1e6)
    got = process.log_pf(np.array(counts), np.array([mean / process.rate_per_ms]))
    truth = [log_poisson(k, process.rate_per_ms * (mean / process.rate_per_ms)) for k in counts]
    np.testing.assert_allclose(got, truth, rtol=0, atol=1e-9)


def test_nothing_arrives_in_no_time():
    counts = np.array([0, 1, 2, 50_000])
    got = Poisson(100.0).log_pf(counts, np.array([[0.0], [1.0]]))
    assert got.shape == (2, 4)
    np.testing.assert_array_equal(got[0], [0.0, -np.inf, -np.inf, -np.inf])
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("load_qps", [1e-6, 3.0, 1e6])
def test_probabilities_add_up_to_one_with_the_mean_of_the_load(load_qps):
    process = Poisson(load_qps)
    counts = np.arange(2_000)
    probability = np.exp(process.log_pf(counts, np.array([0.7])))
    assert probability.sum() == pytest.approx(1.0, abs=1e-12)
    assert counts @ probability == pytest.approx(load_qps * 0.7e-3, rel=1e-10)


@pytest.mark.parametrize("text", ["poisson", "ramsis.arrivals:Poisson"])
def test_the_poisson_process_has_two_names(text):
    assert Arrivals.parse(text)(250.0) == Poisson(250.0)


@pytest.mark.parametrize("name", ["Wrapped", "Outer.Inner"])
def test_a_class_of_ones_own_is_found_by_its_path(name):
    process = Arrivals.parse(f"{HERE}:{name}")(250.0)
    assert process == Wrapped(250.0)
    assert isinstance(process, ArrivalProcess)


@pytest.mark.parametrize("text", [
    "", "bursty", "poisson:", ":Wrapped", ".processes:Wrapped",
    "tests.arrivals.nowhere:Wrapped", f"{HERE}:Nothing", f"{HERE}:Outer.Nothing"
])
def test_a_process_that_cannot_be_found_is_refused_in_one_line(text):
    with pytest.raises(InvalidValueError, match=r"arrivals: .*got .*allowed: ") as caught:
        Arrivals.parse(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_something_that_cannot_be_called_is_refused():
    with pytest.raises(InvalidValueError, match="not callable"):
        Arrivals.parse(f"{HERE}:NOT_CALLABLE")


@pytest.mark.parametrize("name", ["no_argument", "not_a_process"])
def test_a_callable_that_makes_no_process_is_refused_when_it_is_used(name):
    factory = Arrivals.parse(f"{HERE}:{name}")
    with pytest.raises(InvalidValueError, match="an arrival process"):
        factory(100.0)


@pytest.mark.parametrize("process", [
    Poisson(80.0), Wrapped(80.0), Outer.Inner(80.0), NegativeBinomial(80.0, 3.5),
    MarkovModulated(80.0, ratio=4.0, burst_ms=500.0, share=0.2), Described(80.0, 7.0),
])
def test_a_process_can_be_made_again_from_its_description(process):
    assert Arrivals.of(describe_process(process))(80.0) == process


def test_a_description_without_a_process_is_refused():
    with pytest.raises(InvalidValueError, match="unknown arrival process"):
        Arrivals.of({})(80.0)


@pytest.mark.parametrize(("text", "process"), [
    ("negative-binomial:4", NegativeBinomial(90.0, 4.0)),
    ("negative-binomial:dispersion=4", NegativeBinomial(90.0, 4.0)),
    ("negative-binomial:1", Poisson(90.0)),
    ("mmpp:ratio=4,burst-ms=500,share=0.2", MarkovModulated(90.0, 4.0, 500.0, 0.2)),
    ("mmpp:share=0.2,ratio=4,burst_ms=500", MarkovModulated(90.0, 4.0, 500.0, 0.2)),
    ("mmpp:ratio=1,burst-ms=500,share=0.2", Poisson(90.0)),
])
def test_words_name_a_process_and_its_parameters(text, process):
    assert Arrivals.parse(text)(90.0) == process


@pytest.mark.parametrize(("text", "says"), [
    ("poisson:4", "wrong parameters .*got '4'.*allowed: none"),
    ("negative-binomial", "wrong parameters .*allowed: dispersion"),
    ("negative-binomial:0.5", "index of dispersion out of range: got 0.5; allowed: .*>= 1"),
    ("negative-binomial:nan", "dispersion is not a number: got 'nan'"),
    ("negative-binomial:2,3", "dispersion is not a number: got '2,3'|wrong parameters"),
    ("mmpp", "wrong parameters .*allowed: ratio, burst-ms, share"),
    ("mmpp:ratio=4,ratio=4,burst-ms=1,share=0.1", "wrong parameters"),
    ("mmpp:ratio=0.5,burst-ms=1,share=0.1", "ratio out of range: got 0.5"),
    ("mmpp:ratio=2,burst-ms=0,share=0.1", "burst-ms out of range: got 0.0"),
    ("mmpp:ratio=2,burst-ms=1,share=1", "share out of range: got 1.0"),
])
def test_wrong_parameters_are_refused_in_one_line(text, says):
    with pytest.raises(InvalidValueError, match=says) as caught:
        Arrivals.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("entry", [
    {"process": "negative-binomial"}, {"process": "poisson", "dispersion": 4},
    {"process": "mmpp", "ratio": 4, "burst_ms": 500, "share": True},
    {"process": "negative-binomial", "dispersion": "four"},
])
def test_a_description_with_other_parameters_is_refused(entry):
    with pytest.raises(InvalidValueError, match="arrivals"):
        Arrivals.of(entry)(80.0)


def test_a_module_is_not_imported_on_a_files_word(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidValueError, match=r"not imported.*--arrivals planted:X"):
        Arrivals.of({"process": "planted:X"})(80.0)
    assert "planted" not in sys.modules


def test_parameters_reach_a_factory_of_ones_own_or_are_refused():
    name = f"{HERE}:Described"
    made = Arrivals.of({"process": name, "depth": 3.0})(80.0)
    assert made == Described(80.0, 3.0)
    with pytest.raises(InvalidValueError, match=r"takes load_qps, width"):
        Arrivals.of({"process": name, "width": 3.0})(80.0)


def test_a_process_of_another_rate_than_its_load_is_refused():
    with pytest.raises(InvalidValueError, match=r"rate_per_ms: .*: got 0\.2; allowed: 0\.1,"):
        Arrivals.parse(f"{HERE}:twice_the_load")(100.0)


def test_hardly_any_load_has_hardly_any_arrivals():
    assert len(Poisson(5e-324).sample(1000.0, np.random.default_rng(0))) == 0
