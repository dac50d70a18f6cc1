"""Promises by size class: kept rows beside simulations of other requests."""

import csv
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
with (ROOT / "docs/results/sized-promises.csv").open(newline="") as _stream:
    ROWS = list(csv.DictReader(_stream))


def off_by(row: dict[str, str]) -> float:
    return abs(float(row["promised"]) - float(row["simulated"]))


def test_each_class_is_promised_within_the_intervals():
    settings = {(row["cell"], row["load_qps"], row["workers"], row["arrivals"],
                 row["min_in_time"]) for row in ROWS}
    assert len(settings) == 8
    for row in ROWS:
        error = math.hypot(float(row["promised_half_width"]), float(row["simulated_half_width"]))
        assert off_by(row) <= max(0.002, error), row


def test_all_requests_are_promised_within_half_a_thousandth():
    assert all(off_by(row) < 0.0005 for row in ROWS if row["sizes"] == "all")
