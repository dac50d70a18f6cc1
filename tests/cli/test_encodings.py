"""Output in an encoding that lacks characters: no traceback, and the same exit code.

Where the encoding is ASCII, click takes that for a mistake and writes UTF-8.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = ["--slo-ms", "100", "--workers", "2"]
COMMANDS = {
    "a table with dashes": (["bound", "--profiles", "tiny.json", *TINY, "--load", "100"], 0),
    "help": (["generate", "--help"], 0),
    "a placement": (["place", "digits", "--out", "p.json", "--time-limit", "1"], 0),
    "an error": (["validate", "café–.json"], 3),
    "a table of a name": (["profile", "show", "tiny.json"], 0),
}
PLACES = {
    "PYTHONIOENCODING=ascii": {"PYTHONIOENCODING": "ascii"},
    "LC_ALL=C": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii:strict": {"PYTHONIOENCODING": "ascii:strict"},
}


@pytest.mark.parametrize(("name", "place"), [
    pytest.param(name, place, marks=() if place == "latin-1" else pytest.mark.slow)
    for name in COMMANDS for place in PLACES
])
def test_no_character_ends_a_command(
    name: str, place: str, tiny_file: Path, tmp_path: Path
) -> None:
    text = tiny_file.read_text().replace('"small"', '"klein–é"')
    (tmp_path / "tiny.json").write_text(text, encoding="utf-8")
    words, code = COMMANDS[name]
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF8"))}
    ran = subprocess.run([sys.executable, "-m", "ramsis", *words], cwd=tmp_path,
                         env={**environment, **PLACES[place]}, capture_output=True, check=False)
    assert ran.returncode == code, ran.stderr
    assert b"Traceback" not in ran.stderr
    if place == "latin-1":
        assert "–" not in ran.stdout.decode("latin-1")
    if code:
        assert len(ran.stderr.splitlines()) == 1
