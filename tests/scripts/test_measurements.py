"""The script that writes the table of measurements anew."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import measurements

BEGIN, END = "<!-- measurements:begin -->", "<!-- measurements:end -->"
ROWS = [{"scheduler": scheme, "load_qps": load, "upper_bound": 0.97125, "violation_rate": late,
         "effective_accuracy": 0.9137, "expected_effective_accuracy": promise}
        for load in (731.0, 1462.0)
        for scheme, late, promise in (
            ("central-queue", 0.0, 0.9141), ("round-robin", 0.0123, 0.9099),
            ("jellyfish-plus", 0.0, None), ("model-switching", 1e-9, None),
            ("greedy", 0.2, None))]


def test_the_table_on_the_page_is_replaced_and_the_rest_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    monkeypatch.setattr("sys.argv", ["measurements.py", "--page", str(page)])

    def measured(*_: Any) -> list[dict[str, Any]]:
        return ROWS

    monkeypatch.setattr(measurements, "measured", measured)
    measurements.main()
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 2 * len(measurements.SETTINGS)
    assert rows[0].endswith("| 731 | 0.9712 | 0.9141, 0.9137 | 0.9099, 0.9137 (0.012) "
                            "| 0.9137 | 0.9137 | 0.9137 (0.2) |")


def test_the_page_has_the_marks_and_a_table() -> None:
    page = measurements.PAGE.read_text()
    table = page.partition(BEGIN)[2].partition(END)[0]
    assert table.count("\n| `") >= 8
