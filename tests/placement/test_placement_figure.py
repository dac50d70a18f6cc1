"""The figure of a placement."""

from typing import Any

import pytest

from placement_milp import place, problem_from_document
from ramsis.errors import InvalidValueError
from ramsis.report.placement import plot_placement
from tests.placement.samples import problem


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_figure_is_drawn(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"placement{suffix}"
    plot_placement(place(problem(rules={"variants_per_worker": 2})), path)
    assert path.stat().st_size > 1000


def test_another_kind_of_file_is_refused(tmp_path):
    with pytest.raises(InvalidValueError, match="unknown kind of figure"):
        plot_placement(place(problem()), tmp_path / "placement.gif")


def test_layouts_are_drawn_as_they_are(tmp_path, monkeypatch):
    """A box for each instance, where it lies and as wide as its memory slices."""
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    placement = place(problem_from_document({
        "format": "ramsis.placement-problem/1", "name": "cut",
        "objective": {"kind": "fewest-workers"},
        "families": [{"name": "a", "demand_qps": 500, "slo_ms": 100}],
        "worker_types": [{"name": "gpu", "count": 3, "partitions": "A30-24GB"}],
        "variants": [{"name": "a", "family": "a", "accuracy": 1, "memory_mb": 9, "latency": [
            {"worker_type": "gpu/2g.12gb", "batch": 4, "latency_ms": 20}]}]}))
    drawn = []
    barh = Axes.barh

    def watched(axes: Axes, *given: Any, **more: Any) -> Any:
        if more.get("facecolor") == "white":
            drawn.append((given[0], more["left"], given[1]))
        return barh(axes, *given, **more)

    monkeypatch.setattr(Axes, "barh", watched)
    plot_placement(placement, tmp_path / "cut.svg")
    assert sorted(drawn) == sorted(
        (row, int(instance.rpartition("@")[2]), 2)
        for row, gpu in enumerate(placement.gpus) for instance in gpu.instances)
    assert len(drawn) == 3
