"""The page on upstreams: its table is that of the kept rows, and these keep the promise."""

import csv
from pathlib import Path

from upstream import table

ROOT = Path(__file__).resolve().parents[2]
with (ROOT / "docs/results/upstream.csv").open(newline="") as _stream:
    ROWS = list(csv.DictReader(_stream))


def test_the_page_states_what_was_promised_and_delivered():
    page = " ".join((ROOT / "docs/serving/upstream.md").read_text().split())
    for name in ("effective_accuracy", "promised_effective_accuracy"):
        first, second, third = (f"{float(row[name]):.4f}" for row in ROWS[:3])
        assert f"{first}, {second} and {third}" in page
    assert f"{sum(int(row['requests']) for row in ROWS):,} requests" in page
    assert len(table(ROWS).splitlines()) == 2 + len(ROWS)


def test_no_request_was_lost():
    assert sum(int(row["requests"]) for row in ROWS) >= 100_000
    assert {row["unanswered"] for row in ROWS} == {"0"}


def test_the_promise_holds_on_idle_cores():
    kept = [row for row in ROWS if row["promised_effective_accuracy"]]
    assert len(kept) == 3
    assert all(float(row["load_average"]) < 2 for row in kept)
    assert all(abs(float(row["promised_effective_accuracy"]) - float(row["effective_accuracy"]))
               < 0.01 for row in kept)
