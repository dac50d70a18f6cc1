"""The worked example of the documentation is what the program gives."""

import re
from pathlib import Path

import pytest

from ramsis.profiles import Origin, load

DOCS = Path(__file__).resolve().parents[2] / "docs" / "profiles.md"
MARKS = {"": Origin.MEASURED, "\\*": Origin.PADDED, "~": Origin.INTERPOLATED,
         "+": Origin.EXTRAPOLATED}


def test_the_worked_example_is_right(tmp_path):
    text = DOCS.read_text(encoding="utf-8")
    example = re.search(r"```json\n(.*?)```", text, re.S)
    assert example
    (tmp_path / "example.json").write_text(example[1])
    table = load(tmp_path / "example.json").latency_table(max_batch=6)
    for row, name in enumerate(table.models):
        line = re.search(rf"^\| `{name}` \|(.*)\|$", text, re.M)
        assert line
        cells = [re.fullmatch(r" ([\d.]+)(.*) ", cell) for cell in line[1].split("|")]
        assert [float(cell[1]) for cell in cells if cell] == pytest.approx(
            table.latency_ms[row].tolist(), abs=0.005)
        assert [MARKS[cell[2]] for cell in cells if cell] == table.origin[row].tolist()
