"""Pruning: what may go without loss, and the paper's front."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InvalidValueError
from ramsis.profiles import LatencyTable, pareto_front, prune
from ramsis.profiles.importers import import_profile

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
    equal = [table.accuracy[a] == table.accuracy[b],
             *(table.latency_ms[a] == table.latency_ms[b])]
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
        assert set(pareto_front(table, batch)) <= set(table.models)


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
