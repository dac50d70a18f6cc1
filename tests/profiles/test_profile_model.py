"""Profile objects check themselves."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileError, ProfileSet
from ramsis.profiles.sketch import hat_weights, midpoint_levels, sketch_quantile
from tests.profiles.samples import model, profile_set

LATENCY_FIELDS = ("mean_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")


@pytest.mark.parametrize(("field", "value"), [
    *((field, 0.0) for field in LATENCY_FIELDS),
    *(("p95_ms", value) for value in (-1.0, math.nan, math.inf, "10", True, 10**400))])
def test_a_latency_must_be_a_finite_positive_number(field, value):
    with pytest.raises(ProfileError, match=rf"^{field}: .*; allowed: a finite number"):
        BatchProfile(**{"batch": 1, "p95_ms": 10.0, field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("values", "message"), [
    ({"batch": 0}, "^batch: "),
    ({"batch": 1.5}, "^batch: "),
    ({"batch": True}, "^batch: "),
    ({"n": 0}, "^n: "),
    ({"std_ms": -0.1}, "^std_ms: .*>= 0"),
    ({"p95_ms": None}, "^p95_ms: missing; allowed: .*quantiles_ms"),
    ({"p95_ms": None, "min_ms": 1.0, "std_ms": 1.0}, "^p95_ms: missing"),
    ({"p90_ms": 11.0}, "^p95_ms: p95_ms is below p90_ms"),
    ({"min_ms": 9.0, "max_ms": 8.0, "p95_ms": 10.0}, "^max_ms: max_ms is below p95_ms"),
    ({"min_ms": 9.0, "mean_ms": 8.0}, "^mean_ms: outside min_ms … max_ms"),
    ({"quantiles_ms": [1.0]}, "^quantiles_ms: wrong number of entries: .* 2 or more"),
    ({"quantiles_ms": "abc"}, "^quantiles_ms: not a list"),
    ({"quantiles_ms": [1.0, -2.0]}, r"^quantiles_ms\[1\]: not a valid number: got -2"),
    ({"quantiles_ms": [1.0, 3.0, 2.0]}, r"^quantiles_ms\[2\]: numbers fall"),
    ({"quantiles_ms": [1.0, 30.0], "max_ms": 20.0}, r"^quantiles_ms\[1\]: outside min_ms"),
    ({"quantiles_ms": [1.0, 9.0], "min_ms": 5.0}, r"^quantiles_ms\[0\]: outside min_ms"),
    ({"quantile_levels": [0.5, 1.0]}, "^quantile_levels: not a level for .*quantiles_ms"),
    ({"quantiles_ms": [1.0, 9.0], "quantile_levels": [0.2, 0.5, 0.9]},
     "^quantile_levels: not a level for each quantile"),
    ({"quantiles_ms": [1.0, 9.0], "quantile_levels": [0.5, 0.5]},
     r"^quantile_levels\[1\]: numbers do not rise"),
])
def test_a_batch_profile_refuses(values, message):
    with pytest.raises(ProfileError, match=message):
        BatchProfile(**{"batch": 1, "p95_ms": 10.0, **values})  # type: ignore[arg-type]


def test_a_sketch_gives_the_statistics_that_are_not_stated():
    profile = BatchProfile(1, p99_ms=5.0, quantiles_ms=(1.0, 2.0, 3.0, 4.0))
    assert profile.mean_ms == 2.5
    assert profile.p50_ms == 2.5
    assert profile.p95_ms == 4.0
    assert profile.p99_ms == 5.0


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60), st.integers(2, 20))
def test_samples_make_a_profile_that_agrees_with_numpy(samples, size):
    profile = BatchProfile.from_samples(3, samples, size)
    assert (profile.batch, profile.n) == (3, len(samples))
    assert profile.mean_ms == pytest.approx(np.mean(samples), abs=1e-6)
    assert profile.std_ms == pytest.approx(np.std(samples), abs=1e-6)
    assert (profile.min_ms, profile.max_ms) == pytest.approx((min(samples), max(samples)),
                                                             abs=1e-6)
    for level, value in zip((50, 90, 95, 99), (profile.p50_ms, profile.p90_ms, profile.p95_ms,
                                               profile.p99_ms), strict=True):
        assert value == pytest.approx(np.percentile(samples, level), abs=1e-6)
    values = np.array(profile.quantiles_ms)
    assert hat_weights(profile.levels) @ values == pytest.approx(np.mean(samples), abs=1e-6)
    assert values[-1] == pytest.approx(max(samples), abs=1e-6)


def test_intervals_are_those_of_means_stated_errors_and_quantiles_of_the_sketch():
    profile = BatchProfile(1, n=100, mean_ms=10.0, std_ms=2.0, p95_ms=12.0, relative_error=0.1)
    assert profile.interval_ms("mean") == pytest.approx((10 - 1.96 * 0.2, 10 + 1.96 * 0.2))
    assert profile.interval_ms("p95") == pytest.approx((10.8, 13.2))
    sketch = BatchProfile(1, n=100, quantiles_ms=tuple(map(float, range(1, 101))))
    step = 1.96 * math.sqrt(0.95 * 0.05 / 100)
    assert sketch.interval_ms("p95") == pytest.approx((95.5 - 100 * step, 95.5 + 100 * step))


@pytest.mark.parametrize("samples", [[], [[1.0]], [1.0, 0.0], [1.0, math.nan]])
def test_bad_samples_are_refused(samples):
    with pytest.raises(ProfileError, match="samples_ms"):
        BatchProfile.from_samples(1, samples)


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=30).map(sorted))
def test_the_quantiles_of_a_sketch_are_its_own_at_its_levels(quantiles):
    for level, value in zip(midpoint_levels(len(quantiles)), quantiles, strict=True):
        assert sketch_quantile(quantiles, level) == pytest.approx(value)


ONE = BatchProfile(1, p95_ms=1.0)


@pytest.mark.parametrize(("changes", "message"), [
    *(({"accuracy": accuracy}, "^accuracy: ") for accuracy in (-0.1, 1.01, math.nan, "0.5", True)),
    ({"accuracy": 75}, r"in percent\? then write 0\.75"),
    ({"batches": (BatchProfile(2, p95_ms=1.0), BatchProfile(4, p95_ms=2.0))},
     r"^batches: no batch-1 profile: got \[2, 4\]"),
    ({"batches": ()}, "^batches: not a list"),
    ({"batches": (ONE, ONE)}, r"^batches\[1\]\.batch: duplicate batch size: got 1"),
    ({"batches": (1,)}, r"^batches\[0\]: not an object: got 1"),
    ({"memory_mb": 0}, "^memory_mb: "), ({"load_ms": -1.0}, "^load_ms: "),
    ({"name": " "}, "^name: "),
])
def test_a_model_refuses(changes, message):
    with pytest.raises(ProfileError, match=message):
        ModelProfile(**{"name": "a", "accuracy": 0.5, "batches": (ONE,), **changes})


def test_a_set_has_a_name_and_models_each_once_with_ascending_batches():
    assert [item.batch for item in model("a", 0.5, {4: 2.0, 1: 1.0}).batches] == [1, 4]
    with pytest.raises(ProfileError, match=r"^name: "):
        ProfileSet("", (model("a", 0.5, {1: 1.0}),))
    with pytest.raises(ProfileError, match=r"^models: not a list"):
        profile_set()
    with pytest.raises(ProfileError, match=r"^models\[1\]\.name: duplicate model: got 'a'"):
        profile_set(model("a", 0.5, {1: 1.0}), model("a", 0.6, {1: 2.0}))


def test_a_subset_keeps_the_order_given_and_names_what_it_lacks():
    found = profile_set(model("small", 0.5, {1: 1.0}), model("large", 0.6, {1: 2.0}))
    assert [item.name for item in found.subset(["large", "small"]).models] == ["large", "small"]
    with pytest.raises(InvalidValueError, match="'smal'; allowed: small"):
        found.subset(["smal"])


def test_the_frame_has_a_row_for_each_model_and_batch():
    found = profile_set(model("small", 0.5, {1: 1.0, 2: 1.5}), model("large", 0.6, {1: 2.0}))
    frame = found.to_frame()
    assert frame[["model", "batch", "p95_ms"]].to_numpy().tolist() == [
        ["small", 1, 1.0], ["small", 2, 1.5], ["large", 1, 2.0]
    ]
    assert frame["mean_ms"].isna().all()


@pytest.mark.parametrize("statistic", ["mean", "p50", "p90", "p99"])
def test_one_statistic_is_enough_and_another_is_refused_with_what_there_is(statistic):
    only = BatchProfile(1, **{f"{statistic}_ms": 10.0})  # type: ignore[arg-type]
    found = profile_set(ModelProfile("a", 0.5, (only,)))
    assert only.statistics == found.statistics == (statistic,)
    assert found.latency_table(statistic, 1).latency_ms.tolist() == [[10.0]]  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=f"p95_ms: .*allowed: {statistic}"):
        found.latency_table("p95", 1)


def test_a_process_keeps_the_set_that_it_was_sent():
    made, unlike = (profile_set(model(name, 0.5, {1: 2.0})) for name in ("m", "n"))
    one, other = _sent(made), _sent(profile_set(*made.models))
    assert one == made
    assert one is other
    assert one.latency_table() is other.latency_table()
    assert _sent(unlike) == unlike != one


def _sent(profile: ProfileSet) -> ProfileSet:
    received = pickle.loads(pickle.dumps(profile))
    assert isinstance(received, ProfileSet)
    return received


@pytest.mark.parametrize("values", [{"p95_ms": 9e-5}, {"quantiles_ms": [1e-6, 1.0]},
                                    {"mean_ms": 1.0, "min_ms": 1e-300}], ids=str)
def test_latencies_that_rounding_would_decide_on_are_refused(values):
    with pytest.raises(InvalidValueError, match=r"got .*; allowed: .*0\.0001, below which "
                                                r"rounding decides"):
        BatchProfile(1, **values)
    assert BatchProfile(1, p95_ms=1e-4).p95_ms == 1e-4


def test_an_error_of_a_profile_crosses_to_another_process():
    error = ProfileError("not positive", "batches[0].mean_ms", -1.0, "a number > 0")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    bare = ProfileError("is missing", "models", allowed="one or more")
    assert str(copy.copy(bare)) == str(bare)
