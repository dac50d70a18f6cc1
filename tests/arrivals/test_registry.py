"""The registry of arrival processes: one name, one process, everywhere."""

import pickle
import re

import numpy as np
import pytest

from ramsis.arrivals import (
    SHIPPED,
    ArrivalProcess,
    Arrivals,
    MarkovModulated,
    NegativeBinomial,
    Poisson,
    Renewal,
    Sampler,
    describe_process,
    patterns,
)
from ramsis.arrivals.registry import OWN, arrivals_of, format_process
from ramsis.cli.help import TOPICS
from ramsis.errors import InvalidValueError
from ramsis.plugins import trusting
from ramsis.runtime.table import arrivals_label
from tests.arrivals.processes import Wrapped

WORDS = ("poisson", "negative-binomial:4", "negative-binomial:1.0625", "renewal:2", "renewal:0.1",
         "fixed-rate", "mmpp:ratio=4,burst-ms=500,share=0.2",
         "mmpp:ratio=1000000000000.5,burst-ms=1e-07,share=0.1234567890123")


@pytest.mark.parametrize("text", WORDS)
def test_text_process_and_description_lead_to_one_another(text):
    arrivals = Arrivals.parse(text)
    assert arrivals.text == text
    process = arrivals(80.0)
    description = describe_process(process)
    assert Arrivals.of(description) == arrivals
    assert format_process(process) == text
    assert type(process) is SHIPPED[arrivals.name]
    assert process.rate_per_ms == 80.0 / 1000.0
    assert Arrivals.parse(arrivals_label(description)) == arrivals  # of policies, as in rows
    assert pickle.loads(pickle.dumps(arrivals))(80.0) == process


@pytest.mark.parametrize("text", [
    "renewal:1", "negative-binomial:1", "mmpp:ratio=1,burst-ms=5,share=0.5",
])
def test_what_is_poisson_is_called_so(text):
    assert Arrivals.parse(text) == Arrivals.parse("poisson")
    assert Arrivals.parse(text)(5.0) == Poisson(5.0)


@pytest.mark.parametrize("process", [
    Renewal(7.0, 1.0), NegativeBinomial(7.0, 1.0), MarkovModulated(7.0, 1.0, 5.0, 0.5),
])
def test_an_object_that_is_poisson_describes_itself_so(process):
    assert describe_process(process) == {"process": "poisson"}  # type: ignore[arg-type]


def test_help_has_every_process_with_its_parameters():
    _, *rows, (own, _) = TOPICS["processes"][1]()
    assert [*(pattern for pattern, _ in rows), own] == [*patterns(), OWN]
    for (_, about), kind in zip(rows, SHIPPED.values(), strict=False):
        for one in kind.parameters:
            assert re.search(rf"\b{one.symbol}: ", about)
            if one.name.endswith("_ms"):
                assert " ms" in about


@pytest.mark.parametrize("kind", SHIPPED.values(), ids=SHIPPED.keys())
def test_a_process_says_why_its_counts_make_no_decision_problem(kind):
    assert hasattr(kind, "log_pf") == (not kind.why_no_counts)  # type: ignore[attr-defined]
    assert kind.__module__.startswith("ramsis.arrivals.")


@pytest.mark.parametrize("text", ["renewal:2", "fixed-rate"])
def test_a_process_without_independent_counts_makes_no_decision_problem(text):
    arrivals = Arrivals.parse(text)
    assert isinstance(arrivals.drawn(100.0), Sampler)
    with pytest.raises(InvalidValueError, match="are not independent") as caught:
        arrivals.counted(100.0)
    assert repr(text) in str(caught.value)
    assert "allowed: poisson, negative-binomial:I, or " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_process_that_cannot_be_drawn_from_is_not_simulated():
    with trusting(["tests.arrivals.processes:Wrapped"]):
        arrivals = Arrivals.parse("tests.arrivals.processes:Wrapped")
    assert isinstance(arrivals.counted(100.0), ArrivalProcess)
    with pytest.raises(InvalidValueError, match=r"cannot be drawn from.*sample\(duration_ms"):
        arrivals.drawn(100.0)


def test_a_class_or_function_is_taken_as_it_is():
    assert arrivals_of(Wrapped)(50.0) == Wrapped(50.0)
    assert arrivals_of(Poisson)(50.0) == Poisson(50.0)
    assert arrivals_of("renewal:3") == arrivals_of(Arrivals.parse("renewal:3"))


@pytest.mark.parametrize("text", ["renewal", "renewal:x", "renewal:0",
                                  "renewal:inf", "renewal:2,3", "fixed-rate:2", ])
def test_bad_parameters_are_refused_in_one_line(text):
    with pytest.raises(InvalidValueError, match="allowed: ") as caught:
        Arrivals.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("text", WORDS)
def test_every_process_refuses_a_load_that_is_none(text, load):
    with pytest.raises(InvalidValueError, match="load_qps: load is not positive"):
        Arrivals.parse(text)(load)


@pytest.mark.parametrize(("text", "dispersion"), [
    ("poisson", 1.0), ("negative-binomial:4", 4.0), ("renewal:2", 4.0), ("renewal:0.5", 0.25),
    ("fixed-rate", 0.0), ("mmpp:ratio=4,burst-ms=20,share=0.2", None),
])
def test_samples_have_the_rate_and_the_dispersion_of_theory(text, dispersion):
    """Variance over mean of the counts in windows of 2 s; CV² for renewal processes (large T)."""
    process = Arrivals.parse(text).drawn(500.0)
    window = 2000.0
    if dispersion is None:
        assert isinstance(process, MarkovModulated)
        dispersion = float(process.dispersion(np.array([window]))[0])
    times = process.sample(1000 * window, np.random.default_rng(1))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 1000 * window
    counts = np.bincount((times / window).astype(int), minlength=1000)
    error = (max(dispersion, 1e-3) * 1000.0 / 1000) ** 0.5  # of the mean of 1000 counts of 1000
    assert counts.mean() == pytest.approx(1000.0, abs=4 * error)
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.2, abs=1e-3)


@pytest.mark.parametrize("text", WORDS)
def test_nothing_arrives_in_no_time(text):
    assert len(Arrivals.parse(text).drawn(50.0).sample(0.0, np.random.default_rng(0))) == 0
