"""Output in an encoding that lacks characters: no traceback, and the same exit code.

Where the encoding is ASCII, click takes that for a mistake and writes UTF-8.
"""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.slow import slow_after

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


# As the command does, one after the other in one process.
_EACH = """
import json, sys
from ramsis.cli.main import main
for line in sys.argv[1:]:
    try:
        main(json.loads(line))
    except SystemExit as left:
        sys.stdout.flush()
        sys.stderr.write(f"left with {left.code or 0}\\n")
"""


@pytest.mark.parametrize("place", slow_after(1, sorted(PLACES, key="latin-1".__ne__)))
def test_no_character_ends_a_command(place, tiny_file, tmp_path):
    text = tiny_file.read_text().replace('"small"', '"klein–é"')
    (tmp_path / "tiny.json").write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("LC_", "LANG", "PYTHONIO", "PYTHONUTF8"))}
    ran = subprocess.run(
        [sys.executable, "-c", _EACH, *(json.dumps(words) for words, _ in COMMANDS.values())],
        cwd=tmp_path, env={**environment, **PLACES[place]}, capture_output=True, check=False)
    assert b"Traceback" not in ran.stderr
    if place == "latin-1":
        assert "–" not in ran.stdout.decode("latin-1")
    *said, rest = re.split(rb"left with (\d+)\n", ran.stderr)
    assert (ran.returncode, rest) == (0, b""), ran.stderr
    codes = dict(zip(COMMANDS, map(int, said[1::2]), strict=True))
    assert codes == {name: code for name, (_, code) in COMMANDS.items()}, ran.stderr
    for name, lines in zip(COMMANDS, said[::2], strict=True):
        assert not codes[name] or len(lines.splitlines()) == 1, ran.stderr
