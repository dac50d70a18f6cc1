"""The exact optimum of one worker with second opinions, and the rows that are kept."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from scripts.slotted_cascades import SETTINGS, sentence_of
from tests.reference.slotted_cascades import SlottedCascade, optimum

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_a_lone_request_gets_the_large_model_and_mixed_batches_are_never_worse():
    rare = SlottedCascade((1, 1), (3, 3), 5, 0.001, 0.8, 0.25, 0.4)
    assert optimum(rare) == pytest.approx(0.9, abs=1e-3)
    often = rare._replace(came=0.9)
    values = [optimum(often, mixed=mixed, second=second)
              for mixed, second in ((False, False), (False, True), (True, True))]
    assert values == sorted(values)
    assert values[0] > 0.8


def test_a_worker_that_has_time_for_the_small_model_alone_earns_its_accuracy():
    """Batches of the large model would last beyond the deadline."""
    problem = SlottedCascade((1,), (9,), 3, 0.5, 0.8, 0.25, 0.4)
    assert optimum(problem) == pytest.approx(0.8, abs=1e-3)


def test_kept_rows_are_in_order_and_the_page_says_what_they_say():
    rows = pd.read_csv(DOCS / "results/slotted-cascades.csv")
    assert list(zip(rows["due"], rows["came"], strict=True)) == list(SETTINGS)
    values = rows[["one_model", "second_opinions", "mixed", "bound"]].to_numpy()
    assert (np.diff(values, axis=1) >= 0).all()
    assert (rows[["policy", "rule"]].max(axis=1) <= rows["second_opinions"] + 1e-3).all()
    assert sentence_of(rows) in " ".join(
        (DOCS / "howto/cascades.md").read_text("utf-8").split())
