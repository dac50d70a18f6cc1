"""Running the command line inside the test process."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ramsis.cli.main import _run


class Ran(NamedTuple):
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the JSON that a command has printed, which ended well."""
        assert self.code == 0, self.err
        found: list[dict[str, Any]] = json.loads(self.out)["rows"]
        return found


Run = Callable[..., Ran]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line as the console script does, up to leaving the process."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        code = _run([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return run


READ_AS = re.compile(r"note: .*: (?:\d+ rows )?read as \d+ (?:requests|intervals|sizes) ")


def refused(ran: Ran, code: int, *words: str) -> None:
    """One clear line on stderr that holds these words, nothing on stdout, this exit code.

    Before it may stand how a trace was read.
    """
    assert (ran.code, ran.out) == (code, ""), ran.err
    lines = [line for line in ran.err.splitlines() if not READ_AS.match(line)]
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder; to see that nothing was touched."""
    return {str(path): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}


def shown_on(terminal: int) -> str:
    """What others write to a terminal or a pipe until they have closed it."""
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal, on Linux
        while block := os.read(terminal, 65536):
            shown += block
    os.close(terminal)
    return shown.decode()


def in_this_process(words: list[str], title: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command of a plan, as :func:`ramsis.cli.progress.run_with_bar` does."""
    assert words[:4] == [sys.executable, "-P", "-m", "ramsis"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run(words[4:])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
