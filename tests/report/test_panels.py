"""Figures of several panels."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from ramsis.errors import InvalidValueError
from ramsis.report import figure
from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn."""
    figures: list[Any] = []
    real = figure.saved_figure

    @contextmanager
    def kept(*args: Any, **settings: Any) -> Iterator[Any]:
        with real(*args, **settings) as figure:
            figures.append(figure)
            yield figure

    monkeypatch.setattr(figure, "saved_figure", kept)
    return figures


def some_rows(columns: int, lines: int) -> list[PanelRow]:
    def panel(i: int) -> Panel:
        return Panel(f"panel {i}", [
            Series("the bound of all", [100.0, 2000.0], [0.9, 0.8], ref=True),
            *(Series(f"a rather long name {k}", [100.0, 2000.0], [0.8, None if k else 0.7])
              for k in range(lines))])

    both = [panel(i) for i in range(columns)]
    return [PanelRow("accuracy", both), PanelRow("violations (%)", both, 0.5, log_like=True)]


@pytest.mark.parametrize(("columns", "lines"), [(1, 6), (3, 3)])
def test_the_legend_names_each_line_once_and_lies_inside(drawn, tmp_path, columns, lines):
    plot_panels(some_rows(columns, lines), tmp_path / "a.png", "load", log_x=True)
    (figure,) = drawn
    (legend,) = figure.legends
    assert len(legend.get_texts()) == lines + 1
    box, frame = legend.get_window_extent(), figure.bbox
    assert frame.x0 <= box.x0
    assert box.x1 <= frame.x1
    assert box.y1 <= frame.y1
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_a_line_looks_the_same_in_every_panel_and_unlike_the_others(drawn, tmp_path):
    plot_panels(some_rows(3, 4), tmp_path / "a.svg", "load")
    looks: dict[str, set[Any]] = {}
    for axes in drawn[0].axes:
        for line in axes.lines:
            looks.setdefault(line.get_label(), set()).add(
                (line.get_color(), line.get_linestyle(), line.get_marker()))
    assert len(looks) == 5
    assert all(len(look) == 1 for look in looks.values())
    for part in range(3):
        if part != 1:  # dashes of one's own all count as "--"
            assert len({next(iter(look))[part] for look in looks.values()}) == 5


def test_a_log_like_axis_is_not_stretched_over_nothing(drawn, tmp_path):
    flat = [Panel("", [Series("none", [1.0, 2.0], [0.0, 0.0])])]
    plot_panels([PanelRow("violations (%)", flat, log_like=True)], tmp_path / "a.png", "load")
    assert drawn[0].axes[0].get_ylim() == (0.0, 1.0)


def test_a_panel_whose_values_are_all_zero_says_so(drawn, tmp_path):
    def row(top: float) -> PanelRow:
        lines = [Series("a", [1.0, 2.0], [0.0, None]), Series("b", [1.0, 2.0], [0.0, top])]
        return PanelRow("violations (%)", [Panel("", lines)] * 2, from_zero=True)

    plot_panels([row(0.0), row(0.001)], tmp_path / "a.png", "load")
    flat, _, risen, _ = drawn[0].axes
    assert [[text.get_text() for text in axes.texts] for axes in drawn[0].axes] == [
        ["all 0"], ["all 0"], [], []]
    assert flat.get_yticks().tolist() == [0.0]
    for axes in (flat, risen):  # markers at 0 stand above the axis, and nothing cuts them
        low, high = axes.get_ylim()
        assert -0.1 * high < low < -0.03 * high
        assert not any(line.get_clip_on() for line in axes.lines)


def test_many_points_have_no_markers(drawn, tmp_path):
    few, many = ([float(x) for x in range(n)] for n in (60, 61))
    panel = Panel("", [Series("few", few, few), Series("many", many, many)])
    plot_panels([PanelRow("y", [panel])], tmp_path / "a.png", "load")
    assert [line.get_marker() for line in drawn[0].axes[0].lines] == ["o", ""]


def test_a_log_like_axis_reaches_over_the_points_of_all_panels(drawn, tmp_path):
    both = [Panel("", [Series("some", [1.0, 2.0], [0.0, top])]) for top in (1.0, 50.0)]
    plot_panels([PanelRow("violations (%)", both, log_like=True)], tmp_path / "a.png", "load")
    assert all(axes.get_ylim()[1] >= 50.0 for axes in drawn[0].axes)


def test_columns_may_have_axes_of_their_own(drawn, tmp_path):
    line = [Series("some", [1.0, 100.0], [0.0, 1.0])]
    panels = [Panel("a", line, "load", log_x=True), Panel("b", line, "workers")]
    plot_panels([PanelRow("above", panels), PanelRow("below", panels)], tmp_path / "a.png")
    axes = drawn[0].axes
    assert [one.get_xlabel() for one in axes] == ["", "", "load", "workers"]
    assert [one.get_xscale() for one in axes] == ["log", "linear"] * 2


def test_cases_are_named_and_their_points_not_joined(drawn, tmp_path):
    rows = [PanelRow("accuracy", [Panel("", [Series("some", [0.0, 0.9], [0.5, 0.6])])])]
    plot_panels(rows, tmp_path / "a.png", cases=["one", "two"])
    (axes,) = drawn[0].axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["one", "two"]
    assert [line.get_linestyle() for line in axes.lines] == ["None"]


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match=r"a\.gif"):
        plot_panels(some_rows(1, 1), tmp_path / "a.gif", "load")


def test_a_line_without_points_takes_no_room(tmp_path):
    some, none = Series("some", [1.0, 2.0], [0.1, 0.2], [0.01, 0.01]), Series("none", [], [], [])
    columns = [Panel("a", [some]), Panel("b", [some, none]), Panel("c", [some, none])]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a figure that cannot be laid out warns
        plot_panels([PanelRow("y", columns), PanelRow("z", columns)], tmp_path / "figure.png", "x")


def test_no_line_of_a_sweep_joins_cells_that_differ_in_more_than_its_axis():
    from ramsis.report.objects import sweep

    rows = [{"load_qps": load, "scheduler": scheduler, "workers": workers, "slo_ms": slo,
             "effective_accuracy": 0.9 - load / 1e4 - slo / 1e3 - workers / 100}
            for slo in (15, 25) for workers in (2, 4) for scheduler in ("a", "b")
            for load in (100, 200, 300)]
    found = sweep(rows, axes=("workers", "slo_ms", "load_qps", "scheduler"))
    assert [axes.get_title(loc="left") for axes in found.axes] == ["workers 2", "workers 4"]
    for axes in found.axes:
        labels = [line.get_label() for line in axes.lines]
        assert labels == [f"{scheduler}, slo_ms {slo}" for slo in (15, 25) for scheduler in "ab"]
        for line in axes.lines:
            assert list(line.get_xdata()) == [100, 200, 300]
    chosen = sweep(rows, panels="slo_ms", axes=("workers", "slo_ms", "load_qps", "scheduler"))
    assert [axes.get_title(loc="left") for axes in chosen.axes] == ["slo_ms 15", "slo_ms 25"]
    assert len(chosen.axes[0].lines) == 4
