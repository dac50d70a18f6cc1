"""The table of second opinions in the docs is that of the kept rows."""

from pathlib import Path

import cascade_workers
import pandas as pd

from scripts.cascade_families import FAMILIES
from scripts.cascade_families import sentence_of as families_sentence
from scripts.cascade_promises import sentence_of
from scripts.cascades import table_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_states_the_gains_of_the_kept_rows():
    rows = pd.read_csv(DOCS / "results/cascades.csv")
    means = rows.groupby(["slo_ms", "load_qps"]).mean().loc[60.0]
    first, second, third = (f"{gain:.4f}" for gain in
                            (means["cascade"] - means["one_model"]).loc[:12_800.0])
    page = " ".join((DOCS / "howto/cascades.md").read_text("utf-8").split())
    assert f"add {first}, {second} and {third} of effective accuracy" in page
    gains = (means["in_turn"] - means["in_turn_one_model"]).loc[:12_800.0]
    first, second, third = (f"{gain:.4f}" for gain in gains)
    assert f"With round robin they add {first}, {second} and {third} at these loads" in page
    assert (means["in_turn"] > means["one_model"]).loc[:12_800.0].all()
    behind = (means["cascade"] - means["in_turn"]).loc[:12_800.0]
    assert f"{behind.min():.4f} to {behind.max():.4f} behind" in page
    assert len(table_of(rows).splitlines()) == 2 + 8


def test_no_kept_policy_is_below_the_one_without():
    rows = pd.read_csv(DOCS / "results/cascades.csv")
    assert len(rows) == 80
    assert (rows["cascade"] >= rows["one_model"] - 5e-4).all()
    assert (rows["raw_cascade"] >= rows["raw_one_model"] - 5e-4).all()
    assert (rows["cascade"] <= rows["cascade_bound"] + rows["cascade_half_width"]).all()
    assert (rows["in_turn"] >= rows["in_turn_one_model"] - 5e-4).all()
    assert (rows["in_turn"] <= rows["cascade_bound"]).all()


def test_what_the_page_says_of_the_rows_holds():
    means = pd.read_csv(DOCS / "results/cascades.csv").groupby(["slo_ms", "load_qps"]).mean()
    others = means[["one_model", "slackfit", "cascade_serve", "fixed"]].max(axis=1)
    ahead, missing = means["cascade"] - others, means["cascade_bound"] - means["cascade"]
    assert (ahead.loc[60.0].loc[9_600.0:] > 0.0).all()
    assert (ahead > -1e-4).all()
    assert (missing.loc[60.0].loc[:12_800.0] <= 1e-3).all()
    lacks = (means["cascade"] - means["cascade_serve"]).loc[60.0].loc[9_600.0:12_800.0]
    assert (lacks > 6e-4).all()
    assert (lacks < 0.0035).all()


def test_promises_are_kept_in_settings_drawn_at_random():
    rows = pd.read_csv(DOCS / "results/cascade-promises.csv")
    assert rows["setting"].tolist() == list(range(40))
    page = " ".join((DOCS / "howto/cascades.md").read_text("utf-8").split())
    assert sentence_of(rows) in page
    wide = rows["promised_half_width"] + rows["simulated_half_width"]
    assert ((rows["simulated"] - rows["promised"]).abs() <= wide.clip(lower=1e-3)).all()
    assert (rows["simulated"] <= rows["bound"] + rows["simulated_half_width"]).all()
    assert (rows["violations"] < 0.015).all()
    assert rows["verified"].dropna().all()


def test_the_page_shows_the_workers_that_second_opinions_save():
    rows = pd.read_csv(cascade_workers.ROWS)
    *fewer, last = rows["workers"][rows["workers_one_model"] >= 12]
    page = " ".join((DOCS / "howto/cascades.md").read_text("utf-8").split())
    assert f"{', '.join(map(str, fewer))} and {last} workers" in page
    assert len(cascade_workers.table_of(rows).splitlines()) == 2 + len(rows)
    assert rows["workers_one_model"].tolist() == list(cascade_workers.WORKERS)
    assert (rows["workers"] <= rows["workers_one_model"]).all()
    assert (rows["workers"] >= rows["workers_bound"]).all()
    assert (rows["effective_accuracy"] >= rows["min_effective_accuracy"]).all()
    many = rows[rows["workers_one_model"] >= 14]
    saved = 1.0 - many["workers"] / many["workers_one_model"]
    assert ((saved > 0.2) & (saved < 0.37)).all()
    few = rows[rows["workers_one_model"] < 14]
    assert (few["workers_bound"] > 0.8 * few["workers_one_model"]).all()


def test_second_opinions_of_other_models_are_never_below_one_model():
    rows = pd.read_csv(DOCS / "results/cascade-families.csv")
    assert set(rows["family"]) == set(FAMILIES)
    assert (rows["delivered"] >= rows["one_model"] - 5e-4).all()
    assert families_sentence(rows) in " ".join(
        (DOCS / "howto/cascades.md").read_text("utf-8").split())
