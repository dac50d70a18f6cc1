"""The batching library inside Triton: the page has the kept rows, and how batches are compared."""

import csv
from pathlib import Path
from random import Random

import pandas as pd
from live import triton_batching as live

from ramsis.fields import Fields
from ramsis.runtime.sized import SizedRule, SizedTables
from tests.reference import sized_lookup

ROOT = Path(__file__).resolve().parents[2]
with (ROOT / "docs/results/triton-batching.csv").open(newline="") as file:
    ROWS = {row["run"]: row for row in csv.DictReader(file)}


def test_the_page_states_the_kept_rows():
    page = " ".join((ROOT / "docs/serving/triton.md").read_text().split())
    as_rule, batches = (f"{int(ROWS['library'][name]):,}" for name in ("as_rule", "batches"))
    assert f"in {as_rule} of {batches} batches" in page
    rows = pd.read_csv(ROOT / "docs/results/triton-batching.csv")
    assert len(live.table(rows).splitlines()) == 2 + len(ROWS)


def test_no_request_is_lost_and_no_batch_differs_from_the_rule():
    library = ROWS["library"]
    assert int(library["answered"]) == int(library["requests"]) == 100_000
    assert library["lost"] == library["different"] == library["over_limit"] == "0"
    assert int(library["as_rule"]) > 0.9 * int(library["batches"])
    assert int(ROWS["stock"]["over_limit"]) > 0


def test_batches_are_compared_with_the_rule():
    rule = SizedRule(SizedTables.from_fields(Fields(sized_lookup.policy(
        Random(2), "padded", 1, 1), "policy")))
    sizes, sent_s = [8, 8, 100, 8], [0.0, 0.0, 0.0, 0.0]
    batches = [(1.0, [0, 1]), (1.1, [2]), (1.2, [3])]
    assert live.compared(rule, 30.0, batches, sizes, sent_s) == (3, 0, 0)
    batches = [(1.0, [0]), (1.1, [1]), (1.2, [2, 3])]
    assert live.compared(rule, 30.0, batches, sizes, sent_s) == (1, 0, 2)
    sent_s[1] = 0.99  # just before the first batch began
    assert live.compared(rule, 30.0, batches, sizes, sent_s) == (1, 1, 1)
