"""The page on upstreams: its table is that of the kept rows, and these keep the promise."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from upstream import table

ROOT = Path(__file__).resolve().parents[2]
with (ROOT / "docs/results/upstream.csv").open(newline="") as _stream:
    ROWS = list(csv.DictReader(_stream))


def test_the_page_has_the_kept_rows() -> None:
    assert table(ROWS) in (ROOT / "docs/serving/upstream.md").read_text()


def test_no_request_was_lost() -> None:
    assert sum(int(row["requests"]) for row in ROWS) >= 100_000
    assert {row["unanswered"] for row in ROWS} == {"0"}
