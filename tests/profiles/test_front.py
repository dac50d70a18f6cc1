"""Models between those of the Pareto front."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.profiles import (
    LatencyTable,
    ProfileSet,
    between_models,
    interpolate_front,
    load,
    pareto_front,
    save,
)
from ramsis.profiles.importers import import_profile
from tests.profiles.samples import model, profile_set


def accuracies(found: ProfileSet) -> list[float]:
    return [item.accuracy for item in found.models]


@given(st.lists(st.integers(1, 999), min_size=1, max_size=6, unique=True),
       st.floats(0.0015, 0.5))
def test_gaps_are_at_most_a_step_and_no_model_could_be_left_out(mills, step):
    known = sorted(mill / 1000 for mill in mills)
    measured = profile_set(*(model(f"m{i}", a, {1: 10.0 + 100 * a, 2: 20.0 + 300 * a})
                             for i, a in enumerate(known)))
    found = interpolate_front(measured, step, max_batch=3)
    gaps = np.diff(accuracies(found))
    assert (gaps > 0).all()
    assert (gaps <= step * (1 + 1e-6)).all()
    assert set(known) <= set(accuracies(found))
    for low, high in pairwise(known):
        inside = [a for a in accuracies(found) if low < a < high]
        assert len(inside) == pytest.approx((high - low) / step, abs=1 + 1e-6)
        assert len(inside) < (high - low) / step + 1e-6
    table = found.latency_table("p95", 2)
    assert table.latency_ms[:, 0] == pytest.approx([10 + 100 * a for a in accuracies(found)])
    assert table.latency_ms[:, 1] == pytest.approx([20 + 300 * a for a in accuracies(found)])
    assert len(pareto_front(table)) == len(found.models)


def test_measured_models_keep_their_names_and_dominated_ones_go():
    measured = profile_set(model("slow", 0.7, {1: 90.0}), model("a", 0.7, {1: 10.0}),
                           model("b", 0.72, {1: 30.0}))
    found = interpolate_front(measured, 0.01, max_batch=1)
    assert [item.name for item in found.models] == ["a", "a+1", "b"]
    assert accuracies(found) == pytest.approx([0.7, 0.71, 0.72])
    assert found.measurement["interpolated"].startswith("2 measured models on the front and 1 ")


def test_a_single_model_stays_alone():
    found = interpolate_front(profile_set(model("a", 0.7, {1: 10.0})))
    assert [item.name for item in found.models] == ["a"]
    assert [item.batch for item in found.models[0].batches] == list(range(1, 34))


def test_another_statistic_is_the_only_one_of_the_result(tmp_path):
    found = interpolate_front(load("digits-cpu"), 0.01, "mean", 4)
    assert found.statistics == ("mean",)
    save(found, tmp_path / "finer.json")
    assert load(tmp_path / "finer.json") == found


@pytest.mark.parametrize("step", [0, -0.1, 1e-9, 2, float("nan"), True])
def test_a_step_out_of_range_is_refused(step):
    with pytest.raises(InvalidValueError, match="step: step out of range"):
        interpolate_front(profile_set(model("a", 0.7, {1: 10.0})), step)


@pytest.mark.parametrize("accuracy", [[0.69], [0.7, 0.81], [float("nan")]])
def test_accuracies_outside_the_front_are_refused(accuracy):
    table = LatencyTable.measured(["a", "b"], [0.7, 0.8], [[10.0], [20.0]])
    with pytest.raises(InvalidValueError, match="outside the accuracies of the table"):
        between_models(table, accuracy)


def test_models_of_one_accuracy_have_nothing_between_them():
    table = LatencyTable.measured(["a", "b"], [0.7, 0.7], [[10.0], [20.0]])
    with pytest.raises(InvalidValueError, match="two models of one accuracy"):
        between_models(table, [0.7])


def test_nine_image_models_become_sixty_as_in_the_paper(reference_dir):
    images = import_profile(reference_dir / "ramsis_image_profiles.csv")
    assert len(pareto_front(images.latency_table())) == 9
    assert len(interpolate_front(images).models) == 60
