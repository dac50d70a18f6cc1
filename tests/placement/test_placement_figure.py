"""The figure of a placement."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_milp import place
from ramsis.errors import InvalidValueError
from ramsis.report.placement import plot_placement
from tests.placement.samples import problem


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_figure_is_drawn(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"placement{suffix}"
    plot_placement(place(problem(rules={"variants_per_worker": 2})), path)
    assert path.stat().st_size > 1000


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="unknown kind of figure"):
        plot_placement(place(problem()), tmp_path / "placement.gif")
