"""Progress on a terminal, and as lines for the command that runs another one."""

import json
import os
import re
import subprocess
import sys

import pytest

from ramsis.cli.progress import MARK, progress, run_with_bar
from tests.cli.command import shown_on

pty = pytest.importorskip("pty", reason="pseudo-terminals are Unix's")


def test_a_search_reports_what_it_knows_and_ends_whole(run, tiny_file, monkeypatch):
    search = ("capacity", "--profiles", tiny_file, "--slo-ms", 100, "--load", 60, "--scheduler",
              "central-queue:max_queue=8,grid=fixed:10", "--max-violation", 0.01, "--duration-s",
              1, "--seeds", 2)
    quiet = run(*search)
    assert quiet.code == 0
    assert MARK not in quiet.err
    monkeypatch.setenv("RAMSIS_PROGRESS", "1")
    told = run(*search)
    assert told.out == quiet.out
    lines = [json.loads(line.removeprefix(MARK)) for line in told.err.splitlines()
             if line.startswith(MARK) and "workers" in line]
    assert any(re.fullmatch(r"(\d+ miss the target, )?trying \d+", line["text"]) for line in lines)
    assert lines[-1]["done"] == lines[-1]["total"] > 0
    assert re.fullmatch(r"\d+ (meet|miss) the target", lines[-1]["text"])


def test_lines_of_several_processes_are_a_bar_and_the_others_are_returned(tmp_path):
    """On a pseudo-terminal, in a process that has it as its stderr."""
    code = f"""
import sys
from pathlib import Path
from ramsis.cli.progress import run_with_bar
lines = [{{"what": what, "done": done, "total": 4, "text": text}}
         for what, done, text in (("a", 1, "trying 3"), ("b", 4, "2 miss"), ("a", 4, "3 meet"))]
child = f'''
import json, sys
print("a note", file=sys.stderr)
for line in {{lines!r}}:
    print({MARK!r} + json.dumps(line), file=sys.stderr)
print("a result")
sys.exit(4)
'''
done = run_with_bar([sys.executable, "-c", child], "search", Path({str(tmp_path)!r}))
print([done.returncode, done.stdout, done.stderr])
"""
    ours, its = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=its,
                          stdin=subprocess.DEVNULL, text=True,
                          env={**os.environ, "TERM": "xterm", "COLUMNS": "120"}) as process:
        os.close(its)
        shown = shown_on(ours)
        assert process.stdout.read() == "[4, 'a result\\n', 'a note\\n']\n"
    assert "search: a: 3 meet; b: 2 miss" in shown


def test_a_command_that_is_piped_is_not_asked_for_lines(tmp_path):
    code = "import os; print(os.environ.get('RAMSIS_PROGRESS'))"
    done = run_with_bar([sys.executable, "-c", code], "step", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


def test_nothing_is_shown_where_it_is_not_wanted(monkeypatch, capfd):
    monkeypatch.setenv("RAMSIS_PROGRESS", "1")
    with progress("searches", 3, shown=False) as advance:
        advance(text="one", more=2)
    assert capfd.readouterr().err == ""
