"""Commands that write, killed at random moments; and what they left.

Each runs in a forked child, so that a kill costs milliseconds. Half of the kills are at any moment
of its run, half within 10 ms of its first sign in the folder. Then every file there must be the
one of before, or the one of a run without a kill; the same command must succeed; and after that
nothing may be there but what such a run leaves, in particular no temporary files and no processes.
"""

import contextlib
import functools
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ramsis import policy
from ramsis.cli.main import _run
from tests.fuzz.commands import CLUSTER, SHORT, SMALL

PATIENCE_S = 60.0
TABLES = [*CLUSTER, *SHORT, "--scheduler", "jellyfish-plus"]


class Writer(NamedTuple):
    """A command line that writes into ``{work}``; ``before`` is run there first, if given.

    ``varies`` names files whose content is another in every run.
    """

    words: Sequence[str]
    before: Sequence[str] = ()
    varies: Sequence[str] = ()


def _generate(loads: str, *more: str) -> list[str]:
    return ["generate", "--profiles", "{kit}/profile.json", *SMALL, "--load", loads, "--out",
            "{work}/set", *more]


_IMPORT = ["profile", "import", "{kit}/stats.csv", "--out", "{work}/p.json"]
_CAPACITY = ["capacity", "--profiles", "{kit}/profile.json", "--slo-ms", "100", *SHORT,
             "--scheduler", "jellyfish-plus", "--seeds", "1", "--max-violation", "0.5"]
_SCHEDULERS = ["simulate", "{kit}/scenario.json", "--scheduler", "clockwork", "--scheduler",
               "planned", "--csv", "{work}/c.csv", "--timeline", "{work}/t.json", "--plot",
               "{work}/c.png"]
_CALIBRATE = ["serve", "{kit}/serving/policies", "--variants", "{kit}/serving/variants.toml",
              "--code", "summing:fast,summing:slow", "--calibrate", "{work}/p.json",
              "--calibrate-seconds", "0.1"]
_SEND = ["load", "{url}", "--model", "sums", "--slo-ms", "200", "--load", "60", "--duration-s",
         "0.3", "--request-log", "{work}/log.csv"]
WRITERS: dict[str, Writer] = {
    "generate": Writer(_generate("100,200,300"), before=_generate("50,200")),
    "generate --overwrite": Writer(_generate("100,200", "--overwrite"), before=[
        "generate", "--profiles", "{kit}/profile.json", "--slo-ms", "90", *SMALL[2:], "--load",
        "100,300", "--out", "{work}/set"]),
    "generate of two processes": Writer(_generate("100,200,300", "--processes", "2")),
    "sweep": Writer(["sweep", "{kit}/sweep.toml", "--out", "{work}/sweep", "--processes", "1"]),
    "sweep of two processes": Writer(
        ["sweep", "{kit}/sweep.toml", "--out", "{work}/sweep", "--processes", "2"]),
    "simulate": Writer(
        ["simulate", *TABLES, "--csv", "{work}/s.csv", "--plot", "{work}/s.png", "--timeline",
         "{work}/t.json", "--request-log", "{work}/log.csv"],
        before=["simulate", *TABLES, "--seed", "7", "--csv", "{work}/s.csv", "--request-log",
                "{work}/log.csv"]),
    "simulate placement": Writer(["simulate", "--placement", "{kit}/placement.json",
                                  "--duration-s", "0.2", "--csv", "{work}/p.csv"]),
    "capacity": Writer([*_CAPACITY, "--plot", "{work}/c.png"]),
    "capacity --keep": Writer([*_CAPACITY, "--keep", "{work}/kept"]),
    "frontier": Writer(["frontier", *CLUSTER, "--load", "100", "--points", "2", "--queries",
                        "1000", "--max-queue", "4", "--out", "{work}/f.csv", "--plot",
                        "{work}/f.png"]),
    "place": Writer(["place", "{kit}/problem.json", "--out", "{work}/p.json", "--plot",
                     "{work}/p.png"], before=["place", "{kit}/problem.json", "--out",
                                              "{work}/p.json"], varies=["p.json"]),
    "place sharing": Writer(["place", "{kit}/shared-problem.json", "--preset", "usher", "--out",
                             "{work}/p.json", "--plot", "{work}/p.svg"], varies=["p.json"]),
    "scenario placement": Writer(
        ["scenario", "placement", "{kit}/scenario.json", "--out", "{work}/p.json"],
        before=["place", "{kit}/problem.json", "--out", "{work}/p.json"]),
    "cluster": Writer(_SCHEDULERS, before=[*_SCHEDULERS, "--seed", "7"]),
    "report": Writer(
        ["report", "{kit}/set", "{kit}/profile.json", "{kit}/simulated.json", "{kit}/swept",
         "--out", "{work}/r.html"],
        before=["report", "{kit}/profile.json", "--out", "{work}/r.html"]),
    "load": Writer(_SEND, before=[*_SEND, "--load", "20"], varies=["log.csv"]),
    "serve --calibrate": Writer(
        _CALIBRATE, before=["profile", "import", "{kit}/stats.csv", "--out", "{work}/p.json"],
        varies=["p.json"]),
    "profile plot": Writer(["profile", "plot", "{kit}/profile.json", "--out", "{work}/p.pdf"]),
    "profile import": Writer(_IMPORT, before=[*_IMPORT, "--name", "before"]),
    "profile measure": Writer(
        ["profile", "measure", "tests.fuzz.kit:measured", "--backend", "callable", "--batches",
         "1,2", "--seconds-per-batch", "0.02", "--min-samples", "2", "--max-samples", "3",
         "--accuracy", "{kit}/one.json", "--out", "{work}/m.json"], varies=["m.json"]),
    "arrivals fit": Writer(["arrivals", "fit", "{kit}/times.csv", "--plot", "{work}/a.png"]),
    "analyze": Writer(["analyze", "{kit}/set", "--plot", "{work}/a.png"]),
    "audit": Writer(["audit", "{kit}/log.csv", "--profiles", "{kit}/profile.json", "--workers",
                     "4", "--seeds", "1", "--plot", "{work}/a.png"]),
    "export": Writer(["export", "ray-serve", "{kit}/set", "--variants", "{kit}/variants.toml",
                      "--out", "{work}/app.yaml"]),
}


class Finding(NamedTuple):
    """What is wrong after a kill, and when that was."""

    what: str
    after_s: float


def preloaded() -> None:
    """Import what the commands import, so that forked children need not."""
    import importlib
    import pkgutil

    import ramsis.cli

    for module in pkgutil.walk_packages(ramsis.cli.__path__, "ramsis.cli."):
        importlib.import_module(module.name)
    for name in ("matplotlib.figure", "matplotlib.backends.backend_agg", "pandas", "highspy",
                 "ramsis.sim", "ramsis.synthesis", "ramsis.sweep", "ramsis.central.solve",
                 "ramsis.worker.solve", "placement_milp"):
        importlib.import_module(name)


def begun(
    words: Sequence[str], prepare: Callable[[], object] = lambda: None,
    printed: str | os.PathLike[str] = os.devnull,
) -> int:
    """A child in a session of its own that runs a command line, and where what it prints goes."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream, file in ((0, nowhere), (2, nowhere),
                             (1, os.open(printed, os.O_WRONLY | os.O_CREAT, 0o666))):
            os.dup2(file, stream)
        prepare()
        code = _run(list(words))
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """The exit code of a child; minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def told(words: list[str], printed: Path) -> tuple[int, str]:
    """The exit code of a command line, and what it printed."""
    printed.write_text("")
    code = ended(begun(words, printed=printed))
    return code, printed.read_text()


def settled(session: int) -> bool:
    """Whether all processes of a session end soon."""
    until = time.monotonic() + PATIENCE_S / 4
    while time.monotonic() < until:
        if not _members(session):
            return True
        time.sleep(0.02)
    return False


def _members(session: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry))
    return found


def killed_often(
    writer: Writer, kit: Path, root: Path, kills: int, seed: int, seconds: float = math.inf
) -> Iterator[list[Finding]]:
    """Kill a command that often, as time allows, and find what is wrong after each kill."""
    until = time.monotonic() + seconds
    rng = random.Random(seed)
    old, wanted, length_s = whole_run(writer, kit, root)
    for i in range(kills):
        if time.monotonic() > until:
            return
        work = root / "work"
        made_ready(work, old)
        moment = rng.uniform(0, length_s * 1.05) if i % 2 else None
        start = time.monotonic()
        child = begun(words_of(writer.words, kit, work))
        if moment is None:
            _wait_for_change(work, child, start + 2 * length_s)
            moment = rng.uniform(0, 0.01)
            time.sleep(moment)
        else:
            time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        ended(child)
        after_s = time.monotonic() - start
        found = [] if settled(child) else [f"processes stayed: {_members(child)}"]
        found += half_written(work, old, wanted, writer)
        if code := ended(begun(words_of(writer.words, kit, work))):
            found.append(f"the same command then exits with {code}")
        elif wrong := differences(content(work), wanted, writer):
            found.append(f"after the same command: {wrong}")
        yield [Finding(what, after_s) for what in found]


def whole_run(
    writer: Writer, kit: Path, root: Path
) -> tuple[dict[str, bytes], dict[str, bytes], float]:
    """What is there before and after, and how long the command takes."""
    work = root / "work"  # under one name, as files may hold it
    made_ready(work, {})
    if writer.before:
        assert ended(begun(words_of(writer.before, kit, work))) == 0, writer.before
    old = content(work)
    start = time.monotonic()
    assert ended(begun(words_of(writer.words, kit, work))) == 0, writer.words
    return old, content(work), time.monotonic() - start


def words_of(words: Sequence[str], kit: Path, work: Path) -> list[str]:
    """The words with the folders, and the address of the server beside the kit."""
    address = kit / "url.txt"
    names = {"{kit}": str(kit), "{work}": str(work),
             "{url}": address.read_text() if address.exists() else "http://127.0.0.1:9"}
    return [functools.reduce(lambda text, name: text.replace(name, names[name]), names, word)
            for word in words]


def made_ready(work: Path, old: dict[str, bytes]) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, held in old.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(held)


def content(work: Path) -> dict[str, bytes]:
    return {str(path.relative_to(work)): path.read_bytes()
            for path in sorted(work.rglob("*")) if path.is_file()}


def _wait_for_change(work: Path, child: int, until: float) -> None:
    """Until something appears or changes below a folder, or the child has ended."""
    def look() -> list[tuple[str, int]]:
        seen = []
        with contextlib.suppress(FileNotFoundError):
            for path in work.rglob("*"):
                with contextlib.suppress(FileNotFoundError):
                    seen.append((str(path), path.stat().st_mtime_ns))
        return sorted(seen)

    before = look()
    while time.monotonic() < until and look() == before:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.0005)


def half_written(
    work: Path, old: dict[str, bytes], wanted: dict[str, bytes], writer: Writer
) -> Iterator[str]:
    """Files that are neither those of before nor those of a whole run, and what was lost."""
    found = content(work)
    for name, held in found.items():
        if "/." in f"/{name}":
            continue  # on its way
        known = [one[name] for one in (old, wanted) if name in one]
        if held in known or (name in writer.varies and _is_like(held, name, known)):
            continue
        if name.endswith((".json", ".partial")) and _is_json(held) and (
                name.endswith((".partial", "manifest.json")) or name.startswith("sweep/")):
            continue
        yield f"{name} is neither the old nor the new file ({len(held)} bytes)"
    if (work / "set" / policy.MANIFEST_NAME).exists():
        try:
            loads = set(policy.validate_set(work / "set").loads())
        except Exception as error:
            yield f"the set is not valid: {error}"
        else:
            before = {level["load_qps"] for level in json.loads(
                old.get("set/manifest.json", b'{"levels": []}'))["levels"]}
            if "--overwrite" not in writer.words and not loads >= before:
                yield f"levels are lost: {loads} of {before}"
    elif "set/manifest.json" in old:
        yield "the manifest is lost"
    for name in old.keys() & wanted.keys() - found.keys():
        yield f"{name} is lost"


def _is_like(content: bytes, name: str, known: Sequence[bytes]) -> bool:
    """Whether a file that differs in every run is as whole as those that are known."""
    if name.endswith(".json"):
        return _is_json(content)
    return content.endswith(b"\n") and content.count(b"\n") in [one.count(b"\n") for one in known]


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def differences(found: dict[str, bytes], wanted: dict[str, bytes], writer: Writer) -> str:
    if found.keys() != wanted.keys():
        return f"other files: {sorted(found.keys() ^ wanted.keys())}"
    other = [name for name in wanted if found[name] != wanted[name] and name not in writer.varies]
    return f"other content: {other}" if other else ""
