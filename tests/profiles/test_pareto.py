"""Pruning: what may go without loss, the paper's front, and models between those on it."""

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
    prune,
    save,
)
from ramsis.profiles.importers import import_profile
from tests.profiles.samples import model, profile_set

few = st.sampled_from([0.25, 0.5, 0.75])


@st.composite
def tables(draw: st.DrawFn) -> LatencyTable:
    """Tables with many ties."""
    count, batches = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    accuracy = draw(st.lists(few, min_size=count, max_size=count))
    steps = st.lists(st.integers(1, 3), min_size=batches, max_size=batches)
    rows = draw(st.lists(steps, min_size=count, max_size=count))
    latency = np.maximum.accumulate(np.array(rows, dtype=float), axis=1)
    return LatencyTable.measured([f"m{i}" for i in range(count)], accuracy, latency)


def dominates(table: LatencyTable, a: int, b: int) -> bool:
    """Whether model a makes model b superfluous, straight from the definition."""
    better = [table.accuracy[a] >= table.accuracy[b],
              *(table.latency_ms[a] <= table.latency_ms[b])]
    equal = [table.accuracy[a] == table.accuracy[b], *(table.latency_ms[a] == table.latency_ms[b])]
    return all(better) and (not all(equal) or a < b)


@given(tables())
def test_pruning_drops_exactly_the_dominated_models(table):
    count = len(table.models)
    kept = {table.models[b] for b in range(count)
            if not any(dominates(table, a, b) for a in range(count) if a != b)}
    assert set(prune(table).models) == kept


@given(tables())
def test_the_front_at_one_batch_is_the_pruning_of_that_column(table):
    for batch in range(1, table.max_batch + 1):
        column = LatencyTable.measured(table.models, table.accuracy,
                                       table.latency_ms[:, batch - 1 : batch])
        assert pareto_front(table, batch) == prune(column).models


@given(tables())
def test_what_is_kept_stands_fastest_first_with_the_fastest_in_row_0(table):
    pruned = prune(table)
    assert (np.diff(pruned.latency_ms[:, 0]) >= 0).all()
    assert pruned.fastest == 0
    assert pruned.latency_ms[0, 0] == table.latency_ms[table.fastest, 0]
    assert pruned.accuracy[0] == table.accuracy[table.fastest]


def test_a_model_that_is_faster_only_in_batches_is_kept_by_the_lossless_rule_alone():
    table = LatencyTable.measured(["a", "b"], [0.6, 0.6], [[1.0, 9.0], [2.0, 3.0]])
    assert prune(table).models == ("a", "b")
    assert pareto_front(table) == ("a",)
    assert pareto_front(table, 2) == ("b",)


@pytest.mark.parametrize("batch", [0, 3])
def test_a_front_outside_the_table_is_an_error(batch):
    with pytest.raises(InvalidValueError, match="batch"):
        pareto_front(LatencyTable.measured(["a"], [0.6], [[1.0, 2.0]]), batch)


def test_the_image_task_has_the_nine_models_of_the_paper_on_its_front(reference_dir):
    table = import_profile(reference_dir / "ramsis_image_profiles.csv").latency_table()
    nine = ("shufflenet_v2_x0_5", "mobilenet_v3_large", "efficientnet_b0", "efficientnet_b2",
            "efficientnet_b3", "efficientnet_b4", "efficientnet_v2_s", "efficientnet_v2_m",
            "efficientnet_v2_l")
    assert pareto_front(table) == nine
    assert set(nine) < set(prune(table).models)
    assert pareto_front(prune(table)) == nine


def test_the_image_task_fits_the_published_batches_into_the_slo(reference_dir):
    """Largest batch within 150 ms and within 75 ms, fastest model first."""
    table = import_profile(reference_dir / "ramsis_image_profiles.csv").latency_table()
    latency_ms = table.select(pareto_front(table)).latency_ms
    assert (latency_ms <= 150).sum(axis=1).tolist() == [9, 8, 4, 2, 2, 1, 1, 0, 0]
    assert (latency_ms <= 75).sum(axis=1).tolist() == [4, 3, 1, 1, 0, 0, 0, 0, 0]


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


def test_another_statistic_is_the_only_one_of_the_result(tmp_path):
    found = interpolate_front(load("digits-cpu"), 0.01, "mean", 4)
    assert found.statistics == ("mean",)
    save(found, tmp_path / "finer.json")
    assert load(tmp_path / "finer.json") == found


@pytest.mark.parametrize("step", [0, 1e-9, 2, float("nan"), True])
def test_a_step_out_of_range_is_refused(step):
    with pytest.raises(InvalidValueError, match="step: step out of range"):
        interpolate_front(profile_set(model("a", 0.7, {1: 10.0})), step)


@pytest.mark.parametrize(("measured", "accuracy", "message"), [
    ([0.7, 0.8], [0.69], "outside the accuracies of the table"),
    ([0.7, 0.8], [0.7, 0.81], "outside the accuracies of the table"),
    ([0.7, 0.8], [float("nan")], "outside the accuracies of the table"),
    ([0.7, 0.8], [[0.7]], "not an accuracy for each name"),
    ([0.7, 0.7], [0.7], "two models of one accuracy"),
])
def test_accuracies_that_are_not_between_models_are_refused(measured, accuracy, message):
    table = LatencyTable.measured(["a", "b"], measured, [[10.0], [20.0]])
    with pytest.raises(InvalidValueError, match=message):
        between_models(table, accuracy)


def test_nine_image_models_become_sixty_as_in_the_paper(reference_dir):
    images = import_profile(reference_dir / "ramsis_image_profiles.csv")
    assert len(interpolate_front(images).models) == 60
