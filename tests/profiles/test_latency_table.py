"""The latency table: padding, filling, marks, and its own checks."""

import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import theilslopes

from ramsis.errors import InvalidValueError
from ramsis.profiles import (
    BatchProfile,
    LatencyTable,
    ModelProfile,
    Origin,
    ProfileSet,
    check_profile,
    load,
)
from ramsis.profiles.table import fill_row, theil_sen_slope
from tests.profiles.samples import model, profile_set
from tests.reference.latency_table import entry, filled, run_as

DOCS = Path(__file__).resolve().parents[2] / "docs" / "profiles.md"
MARKS = {"": Origin.MEASURED, "\\*": Origin.PADDED, "~": Origin.INTERPOLATED,
         "+": Origin.EXTRAPOLATED}
latencies = st.floats(0.01, 1e4)
measured_values = st.dictionaries(st.integers(2, 40), latencies, max_size=12).flatmap(
    lambda others: latencies.map(lambda first: dict(sorted({1: first, **others}.items())))
)


def row(measured: dict[int, float], max_batch: int) -> tuple[list[float], list[Origin]]:
    latency, origin, _ = fill_row(
        np.array(list(measured)), np.array(list(measured.values())), max_batch
    )
    return latency.tolist(), [Origin(int(value)) for value in origin]


@given(measured_values, st.integers(1, 50))
def test_every_entry_follows_the_rules(measured, max_batch):
    latency, origin = row(measured, max_batch)
    for batch in range(1, max_batch + 1):
        value, source = entry(measured, batch)
        assert latency[batch - 1] == pytest.approx(value, rel=1e-12)
        close = {Origin.PADDED, Origin.INTERPOLATED} if any(
            value == pytest.approx(other, rel=1e-12) for size, other in measured.items()
            if size > batch
        ) else {source}
        assert origin[batch - 1] in close | {source}


@given(measured_values, st.integers(1, 50))
def test_padded_batches_name_the_size_to_run(measured, max_batch):
    latency, origin, sizes = fill_row(
        np.array(list(measured)), np.array(list(measured.values())), max_batch)
    for batch in np.flatnonzero(origin == Origin.PADDED) + 1:
        # Rounding decides between a batch's own value and one that is larger by nothing else.
        if latency[batch - 1] < filled(measured, int(batch))[0] * (1.0 - 1e-12):
            assert sizes[batch - 1] == run_as(measured, int(batch))
        assert measured[int(sizes[batch - 1])] == latency[batch - 1]
    own = origin != Origin.PADDED
    assert (sizes[own] == 1 + np.flatnonzero(own)).all()


def test_a_dip_within_the_error_of_measurement_is_noise():
    rng = np.random.default_rng(4)
    same = [BatchProfile.from_samples(b, rng.normal(10.0, 1.0, 200)) for b in (1, 2, 4)]
    found = ProfileSet("p", (ModelProfile("m", 0.5, tuple(same)),)).latency_table("p95", 4)
    assert len(set(found.latency_ms[0].tolist())) < 4
    assert Origin.SMOOTHED in found.origin
    assert Origin.PADDED not in found.origin
    fact = [BatchProfile.from_samples(b, rng.normal(mean, 1.0, 200))
            for b, mean in ((1, 10.0), (2, 30.0), (4, 15.0))]
    found = ProfileSet("p", (ModelProfile("m", 0.5, tuple(fact)),)).latency_table("p95", 4)
    assert found.origin[0].tolist() == [Origin.MEASURED, Origin.PADDED, Origin.PADDED,
                                        Origin.MEASURED]
    assert found.run_as[0].tolist() == [1, 4, 4, 4]
    kinds = [item.kind for item in check_profile(
        ProfileSet("p", (ModelProfile("m", 0.5, tuple(same)),)))]
    assert "noise" in kinds
    assert "not-monotone" not in kinds


def test_stated_relative_errors_make_dips_noise_where_there_is_no_sketch():
    def table(error: float) -> LatencyTable:
        one = [BatchProfile(b, p95_ms=ms, relative_error=error) for b, ms in ((1, 10.0), (2, 9.0))]
        return ProfileSet("p", (ModelProfile("m", 0.5, tuple(one)),)).latency_table("p95", 2)

    assert table(0.1).latency_ms.tolist() == [[9.5, 9.5]]
    assert table(0.01).latency_ms.tolist() == [[9.0, 9.0]]
    assert table(0.01).run_as.tolist() == [[2, 2]]


@given(measured_values)
def test_rows_never_fall_with_the_batch_size(measured):
    latency, _ = row(measured, 50)
    assert (np.diff(latency) >= 0).all()


@given(measured_values.filter(lambda measured: len(measured) > 1))
def test_the_slope_is_the_theil_sen_slope_of_scipy(measured):
    x, y = np.array(list(measured)), np.array(list(measured.values()))
    assert theil_sen_slope(x, y) == pytest.approx(theilslopes(y, x)[0], rel=1e-9, abs=1e-9)


def test_one_wild_measurement_does_not_tilt_the_extrapolation():
    line = {batch: 10.0 * batch for batch in range(1, 9)}
    latency, origin = row({**line, 7: 9000.0}, 10)
    assert latency[8:] == pytest.approx([90.0, 100.0])
    assert latency[6] == 80.0
    assert origin[6:] == [Origin.PADDED, Origin.MEASURED, Origin.EXTRAPOLATED, Origin.EXTRAPOLATED]


@pytest.mark.parametrize(("arguments", "message"), [
    (("p99",), "model a, batch 1, p99_ms"), (("p42",), r"statistic.*'p42'.*p95"),
    *((("p95", largest), "max_batch") for largest in (0, 65537, 2.0, True))])
def test_a_table_that_cannot_be_made_is_refused(arguments, message):
    with pytest.raises(InvalidValueError, match=message):
        profile_set(model("a", 0.5, {1: 3.0})).latency_table(*arguments)


def test_the_fastest_model_is_the_more_accurate_of_equals_then_the_first():
    table = LatencyTable.measured(["a", "b", "c"], [0.5, 0.7, 0.7], [[2.0], [2.0], [2.0]])
    assert table.fastest == 1
    assert LatencyTable.measured(["a", "b"], [0.9, 0.1], [[2.0], [1.0]]).fastest == 1


def test_select_keeps_the_order_given():
    table = profile_set(model("a", 0.5, {1: 3.0, 2: 4.0}), model("b", 0.6, {1: 5.0}))
    chosen = table.latency_table(max_batch=3).select(["b", "a"])
    assert chosen.models == ("b", "a")
    assert chosen.latency_ms[:, 0].tolist() == [5.0, 3.0]
    assert chosen.origin[:, 1].tolist() == [Origin.EXTRAPOLATED, Origin.MEASURED]
    with pytest.raises(InvalidValueError, match=r"unknown model.*'z'"):
        chosen.select(["z"])


def test_the_arrays_are_private_and_read_only():
    latency = np.array([[1.0, 2.0]])
    table = LatencyTable.measured(["a"], [0.5], latency)
    latency[0, 0] = 99.0
    assert table.latency_ms[0, 0] == 1.0
    for array in (table.accuracy, table.latency_ms, table.origin):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize(("change", "message"), [
    ({"models": ()}, "no models"),
    ({"models": ("a", "a")}, "duplicate model"),
    ({"models": ("a", "")}, "no name"),
    ({"accuracy": [0.5]}, r"accuracy: wrong shape.*\(2,\)"),
    ({"accuracy": [0.5, 1.5]}, "model b: accuracy out of range"),
    ({"accuracy": [0.5, float("nan")]}, "model b: accuracy out of range"),
    ({"latency_ms": [[1.0, 2.0]]}, "latency_ms: wrong shape"),
    ({"latency_ms": [[], []]}, "latency_ms: wrong shape"),
    ({"latency_ms": [["x", 1.0], [1.0, 2.0]]}, "latency_ms: not an array of numbers"),
    ({"latency_ms": [[1.0, 2.0], [0.0, 2.0]]}, "model b, batch 1.*not positive"),
    ({"latency_ms": [[1.0, 2.0], [1.0, np.inf]]}, "model b, batch 2.*not positive"),
    ({"latency_ms": [[1.0, 2.0], [3.0, 2.0]]}, "model b, batch 2.*falls"),
    ({"origin": [[0, 0]]}, "origin: wrong shape"),
    ({"origin": [[0, 0], [0, 7]]}, "unknown origin"),
])
def test_a_table_made_by_hand_is_checked(change, message):
    table = LatencyTable.measured(["a", "b"], [0.5, 0.6], [[1.0, 2.0], [2.0, 2.0]])
    with pytest.raises(InvalidValueError, match=message):
        replace(table, **change)  # type: ignore[arg-type]


def test_many_batch_sizes_take_little_memory():
    """The slopes of all pairs of 8,192 sizes took 1.4 GB, and a check of them minutes."""
    sizes = range(1, 8193)
    model = ModelProfile("m", 0.5, tuple(BatchProfile(b, p95_ms=5.0 + 0.5 * b) for b in sizes))
    profile_set = ProfileSet("many", (model,))
    tracemalloc.start()
    table = profile_set.latency_table("p95", 9000)
    assert check_profile(profile_set) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert table.latency_ms[0, -1] == pytest.approx(5.0 + 0.5 * 9000)


def test_few_of_many_points_give_the_slope():
    rng = np.random.default_rng(3)
    sizes = np.arange(1.0, 5001.0)
    values = 3.0 + 0.25 * sizes + rng.normal(0, 5.0, len(sizes))
    assert theil_sen_slope(sizes, values) == pytest.approx(0.25, rel=0.01)


def test_the_worked_example_of_the_documentation_is_right(tmp_path):
    text = DOCS.read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", text, re.S)
    assert example
    (tmp_path / "example.json").write_text(example[1])
    table = load(tmp_path / "example.json").latency_table(max_batch=6)
    for row, name in enumerate(table.models):
        line = re.search(rf"^\| `{name}` \|(.*)\|$", text, re.M)
        assert line
        cells = [re.fullmatch(r" ([\d.]+)(.*) ", cell) for cell in line[1].split("|")]
        assert [float(cell[1]) for cell in cells if cell] == pytest.approx(
            table.latency_ms[row].tolist(), abs=0.005)
        assert [MARKS[cell[2]] for cell in cells if cell] == table.origin[row].tolist()
