"""The script about promises on raw samples: what it counts as kept, and that it goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import raw_promises
from raw_promises import PER_WORKER, Case


@pytest.mark.slow
def test_a_promise_of_rare_outliers_holds():
    found = raw_promises.outcome(Case("outlier", PER_WORKER, 1, 60.0, 60.0, 2000, 60_000))
    assert found["holds"]
    assert found["replayed"] > 0.002


def test_a_budget_that_samples_cannot_support_is_refused_with_a_number():
    found = raw_promises.outcome(
        Case("log-normal", PER_WORKER, 1, 60.0, 60.0, 200, 1000, budget=0.0005))
    assert found["holds"]
    assert "samples or more" in found["refused"]


def test_results_that_are_there_are_not_made_again(tmp_path, monkeypatch, capsys):
    asked: list[Case] = []

    def outcome(case: Case) -> dict[str, Any]:
        asked.append(case)
        return {"holds": case.law != "bimodal", "refused": "a reason"}

    monkeypatch.setattr(raw_promises, "outcome", outcome)
    out = tmp_path / "found.jsonl"
    monkeypatch.setattr(sys, "argv", ["raw_promises.py", "--quick", "--out", str(out)])
    assert raw_promises.main() == 1
    assert len(asked) == len(out.read_text().splitlines()) == 6
    assert raw_promises.main() == 1
    assert len(asked) == 6
    printed = capsys.readouterr().out
    assert printed.count("4 of 6 hold, 6 refused") == 2
    assert printed.count("MISS") == 4
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["key"]["law"] for row in rows} == set(raw_promises.LAWS)
