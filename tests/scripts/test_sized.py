"""``scripts/sized.py``: the table of docs/sizes.md is that of kept rows, which play again."""

from pathlib import Path

import pandas as pd
import pytest

from scripts import sized

ROWS = Path(__file__).resolve().parents[2] / "docs/results/sized.csv"


def test_the_page_has_the_table_of_the_kept_rows():
    table = sized.table_of(pd.read_csv(ROWS))
    assert f"<!-- sized:begin -->\n{table}\n<!-- sized:end -->" in sized.PAGE.read_text("utf-8")


@pytest.mark.parametrize("schedulers", [
    [name for name in sized.SCHEDULERS if name != sized.POLICY],
    pytest.param([sized.POLICY], marks=pytest.mark.slow)], ids=["rules", "policy"])
def test_kept_rows_are_played_again(schedulers):
    """The first seed of each scheduler on the GPU at the highest load, to the last digit kept."""
    kept = pd.read_csv(ROWS).set_index(["cell", "load_qps", "scheduler", "seed"])
    for row in sized.played(["gpu"], seeds=1, highest=True, schedulers=schedulers):
        key = tuple(row.pop(name) for name in kept.index.names)
        for name, value in row.items():
            assert value == pytest.approx(kept.loc[key, name], abs=1e-6)


def test_figures_agree_with_another_program():
    """Which played six thousand requests a cell, so they agree within the noise of its sample."""
    means = pd.read_csv(ROWS).groupby(["cell", "load_qps", "scheduler"])["in_time"].mean()
    for cell, load, scheduler, printed in (
        ("cpu", 90, "turbo-dp", 0.878), ("cpu", 120, "turbo-dp", 0.624),
        ("cpu", 90, "replanned-dp", 0.980), ("cpu", 120, "replanned-dp", 0.937),
        ("gpu", 2400, "token-budget", 0.560), ("gpu", 3600, "token-budget", 0.376),
        ("gpu", 4800, "token-budget", 0.293), ("gpu", 3600, "turbo-dp", 0.963),
        ("gpu", 4800, "turbo-dp", 0.668), ("gpu", 3600, "replanned-dp", 0.980),
        ("gpu", 4800, "replanned-dp", 0.915), ("flash", 9600, "token-budget", 0.458),
        ("flash", 9600, "token-budget:order=size", 0.986),
    ):
        assert means[cell, load, scheduler] == pytest.approx(printed, abs=0.04)
