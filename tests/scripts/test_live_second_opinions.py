"""The table of live second opinions in the docs is that of the kept rows."""

from pathlib import Path

import pandas as pd
import pytest
from live.second_opinions import table_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


def kept() -> pd.DataFrame:
    return pd.read_csv(DOCS / "results/live-cascades.csv")


def test_the_page_states_the_kept_rows():
    page = " ".join((DOCS / "serving/fidelity.md").read_text("utf-8").split())
    for name in ("live_effective_accuracy", "promised_one_model"):
        *first, last = (f"{value:.4f}" for value in kept()[name])
        assert f"{', '.join(first)} and {last}" in page
    assert len(table_of(kept()).splitlines()) == 2 + len(kept())


def test_live_runs_are_as_near_the_promise_as_the_pages_state():
    rows = kept()
    assert rows["load_share"].tolist() == [0.5, 0.65, 0.8, 0.95]
    missed = rows["promised_effective_accuracy"] - rows["live_effective_accuracy"]
    assert (missed.min(), missed.max()) == pytest.approx((0.0003, 0.0042), abs=5e-5)
    assert (rows["live_in_time"] >= 0.9995).all()
    assert (rows["live_effective_accuracy"] > rows["promised_one_model"]).all()
    assert rows["live_second_opinions"].max() > 0.1
