"""One damaged file or odd command line by its number, and what is wrong with how it is answered.

Wrong is: a traceback, a warning, an exit code that is not documented, more than one line about an
error, a file touched by a command that refuses its input, input changed or temporary files left by
any, more than 10 s, more than 1 GB, a module imported that only a file names, control characters
printed, and anything that is changed behind a link.
"""

import contextlib
import hashlib
import io
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from ramsis.cli.main import _run, cli
from tests.fuzz.commands import COMMANDS, READERS
from tests.fuzz.mutate import ODD_TEXTS, mutated

SECONDS, BYTES = 10, 1 << 30
_CODES = (0, 2, 3, 4, 5, 6)
_WORDS = (*ODD_TEXTS, "1", "2", "100", "0.5", "1e9", "1000000000000", "100:200:100", "0:1:0",
          "1:1e9:1e-3", "gpu=4,cpu=40", "gpu=", "=4", "a=1,a=2", "100:0.3,150:0.7",
          "100:0.5,100:0.5", "100:nan,50:1", "fixed:3", "fixed:1000000000", "model", "auto",
          "poisson", "renewal:0", "renewal:1e-9", "mmpp:ratio=1e9,burst-ms=1,share=0.5",
          "no.such:thing",
          "os:system",
          "negative-binomial:1e300", "greedy", "round-robin", "share=0.1,factor=2,length-ms=50",
          "share=2,factor=-1,length-ms=0", "day", "profile", "digits-cpu", "small",
          "2147483648", "18446744073709551616")
_PATHS = ("", ".", "..", "none", "none/none", "existing.txt", "existing.txt/x", "folder",
          "x" * 300, "x" * 300 + ".png", "caf\udce9", "a\nb.png", "figure.png", "figure.gif",
          "/dev/null", "/dev/full", "-", "{existing}")
_SOURCES = ("", ".", "none", "folder", "existing.txt", "{kit}/times.csv", "{kit}/set", "{kit}",
            "{kit}/profile.json", "{kit}/times.txt.gz", "/dev/null", "/dev/zero", "caf\udce9",
            "x" * 300)
NEVER = {"--help", "-h", "--version", "--host", "--port", "--inputs"}


class Case(NamedTuple):
    """A command line, and the file that it names as ``{file}``."""

    words: tuple[str, ...]
    file: str | None = None
    content: bytes | None = None


def case_of(number: int, kit: Path, only: str = "") -> Case:
    """The case of a number: of every five, three are files.

    ``only`` chooses the kinds of files that have it in their names, and no other command lines.
    """
    rng = random.Random(number)
    return _file_case(kit, rng, only) if only or number % 5 < 3 else _option_case(rng)


def _file_case(kit: Path, rng: random.Random, only: str) -> Case:
    kind = READERS[rng.choice([name for name in sorted(READERS) if only in name])]
    content = mutated((kit / kind.file).read_bytes(), kind.syntax, rng)
    return Case(tuple(rng.choice(kind.commands)), kind.file, content)


def _option_case(rng: random.Random) -> Case:
    name = rng.choice(sorted(COMMANDS))
    words = list(COMMANDS[name])
    command = command_of(words)
    options = [one for one in command.params if isinstance(one, click.Option)
               and not NEVER & set(one.opts)]
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if options else 0):
        option = rng.choice(options)
        words.append(rng.choice(option.opts + option.secondary_opts))
        if not option.is_flag:
            words.append(_odd_value(option, rng))
    if rng.random() < 0.15:
        way, at = rng.randrange(3), rng.randrange(1, len(words))
        if way == 0:
            del words[at]
        else:
            words[at:at + (way == 1)] = [rng.choice(_SOURCES)]
    return Case(tuple(words))


def command_of(words: list[str]) -> click.Command:
    """The command that a line begins with."""
    found: Any = cli
    for word in words:
        found = found.get_command(click.Context(found), word)
        if not isinstance(found, click.Group):
            break
    command: click.Command = found
    return command


def _odd_value(option: click.Option, rng: random.Random) -> str:
    name = option.type.name
    written = option.opts[0] in ("--out", "--csv", "--plot", "--timeline", "--request-log",
                                 "--calibrate", "--keep")
    if written:
        return rng.choice(_PATHS)
    if isinstance(option.type, click.Choice) and rng.random() < 0.7:
        return str(rng.choice(tuple(option.type.choices)))
    if name in ("path", "file", "profiles", "trace") or option.metavar in ("FILE", "FILE|NAME"):
        return rng.choice(_SOURCES) if rng.random() < 0.7 else rng.choice(_WORDS)
    return rng.choice(_WORDS)


class _TooSlow(BaseException):
    pass


def quiet_run(words: list[str]) -> tuple[int | None, str, str]:
    """Run a command line in this process: exit code (None: a traceback), stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: int | None = _run(words)
        except _TooSlow:
            code = -1
        except Exception:
            code = None
            err.write(traceback.format_exc())
    return code, out.getvalue(), err.getvalue()


def told(words: list[str]) -> tuple[int, str]:
    """The exit code of a command line, 1 for a traceback, and what it printed."""
    code, out, _ = quiet_run(words)
    return 1 if code is None else code, out


def examine(case: Case, kit: Path, folder: Path) -> list[str]:
    """Answer a case in an empty folder of its own, and list what is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "folder").mkdir(parents=True)
    (folder / "existing.txt").write_text("mine\n")
    beside = kit.parent / "beside"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    (beside / "x.json").write_text("{}\n")
    (folder / "linked").symlink_to(beside)
    marks = f"open({str(beside / 'imported')!r}, 'w').close()"
    (folder / "evil.py").write_text(f"{marks}\nf = print\n")
    words = _placed(case, kit, folder)
    before, kept = _snapshot(folder), _snapshot(kit)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.chdir(folder), _limited(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        code, out, err = quiet_run(words)
    found = _wrong_answer(words, code, err)
    shown = (out + err).encode(errors="replace").decode()  # as the command line has streams do
    if not shown.translate({10: None, 9: None}).isprintable():
        found.append(f"prints control characters: {shown[:300]!a}")
    if _snapshot(beside).keys() != {"x.json"}:
        found.append(f"touched what is beside: {sorted(_snapshot(beside))}")
    found += [f"warning: {one.message}" for one in warned
              if issubclass(one.category, RuntimeWarning | UserWarning | SyntaxWarning)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024
    if grown > BYTES:
        found.append(f"took {grown >> 20} MB")
    after = _snapshot(folder)
    if code in (2, 3) and after != before and not err.startswith("failed: "):
        touched = sorted(dict(before.items() ^ after.items()))
        found.append(f"exit code {code}, but touched {touched}")
    if _snapshot(kit) != kept:
        found.append("changed its input")
    if left := [name for name in after if ".ramsis-tmp" in name or name.endswith(".new")]:
        found.append(f"left {left}")
    return found


def _wrong_answer(words: list[str], code: int | None, err: str) -> list[str]:
    lines = [line for line in err.splitlines() if not line.startswith(("note: ", "figure in "))]
    if code is None:
        places = [line.strip() for line in lines
                  if "/ramsis/" in line or "/placement_milp/" in line]
        return [f"traceback: {lines[-1]} ({'; '.join(places[-2:])})"]
    if code == -1:
        return [f"took more than {SECONDS} s"]
    if code not in _CODES:
        return [f"exit code {code}: {err}"]
    if words[0] == "validate":  # a line for each file
        lines = lines[:1]
    if words[0] == "sweep" and lines and all(line.startswith("failed: ") for line in lines):
        return []  # a line for each cell
    if code and (len(lines) != 1 or not lines[0].startswith("error: ")):
        return [f"exit code {code} with {len(lines)} lines: {err}"]
    if code and ("not enough memory" in err or len(lines[0]) > 2500):
        return [f"exit code {code}: {lines[0][:300]}"]
    return []


def _placed(case: Case, kit: Path, folder: Path) -> list[str]:
    """The command line with its files in place."""
    file = folder / "in" / Path(case.file or "none").name
    if case.file is not None:
        if "/" in case.file:
            shutil.copytree((kit / case.file).parent, folder / "in")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes((case.content or b"").replace(b"{kit}", str(kit).encode()))
    existing = folder / "existing"
    if "{existing}" in case.words:
        shutil.copytree(kit / "set", existing)
    names = {"{kit}": str(kit), "{file}": str(file), "{folder}": str(file.parent),
             "{out}": str(folder / "out"), "{existing}": str(existing)}
    words = []
    for word in case.words:
        for name, value in names.items():
            word = word.replace(name, value)
        words.append(word)
    return words


def _snapshot(folder: Path) -> dict[str, str]:
    """A digest of everything below a folder."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            if path.is_file() else "" for path in folder.rglob("*")}


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """A limit on processor time, and a larger one on waiting: the machine may be busy."""
    def stop(*_: object) -> None:
        raise _TooSlow

    clocks = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
              (signal.ITIMER_REAL, signal.SIGALRM, 6 * SECONDS))
    before = [signal.signal(number, stop) for _, number, _ in clocks]
    for clock, _, seconds in clocks:
        signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        for (clock, number, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)
