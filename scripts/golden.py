"""What commands print and write, kept and compared: for changes that are meant to change nothing.

    scripts/golden.py keep FOLDER          runs every case, and keeps what it printed and wrote
    scripts/golden.py compare FOLDER       runs them again, and says which differ; exit code 1 then
    scripts/golden.py compare FOLDER --only place --only cluster
    scripts/golden.py compare FOLDER --without interval    leaves a removed field of JSON out

A case is a few commands in a folder of its own. Settings are drawn with a fixed seed and are not
round. What is kept is compared byte for byte, but for seconds that work took. The two runs have to
be on one machine with one set of libraries: digits of solvers differ between versions.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, cast

_SETTINGS, _RUNS, _CLUSTERS, _PLACEMENTS = 80, 40, 40, 16
_TOOK = re.compile(r'("?\w*(?:seconds|_s|elapsed|wall_clock)\w*"?[:=] ?)[0-9.e+-]+')
_OWN_SECONDS = {"duration_s", "window_s", "interval_s"}
_KINDS = {"digits-cpu": (15, 60, 900), "text-cpu": (40, 300, 60), "image-cpu": (120, 400, 12)}
_SCHEMES = (
    "jellyfish-plus", "jellyfish-plus:headroom=1.2", "model-switching", "greedy",
    "clipper:model={}", "bentoml:model={},batch=4", "symphony:model={}", "fixed:model={},batch=3",
    "round-robin:max_queue=8,grid=fixed:20,headroom=0",
    "central-queue:max_queue=8,grid=fixed:20,headroom=0",
    "shortest-queue:max_queue=8,grid=fixed:20,headroom=0")
_SCHEDULERS = (
    "clockwork", "planned", "planned:worth=0.1", "lru", "random", "autoscale", "baseline",
    "modified-baseline", "clockwork-adjusted", "round-robin")


class Case(NamedTuple):
    """Commands that run one after the other in a folder.

    Attributes
    ----------
    name : str
    files : dict of str to Any
        Documents that are written there first, by name.
    commands : tuple of tuple of str
    """

    name: str
    files: dict[str, Any]
    commands: tuple[tuple[str, ...], ...]


def cases() -> Iterator[Case]:
    """All cases, in the order of their kinds."""
    rng = random.Random(20261)
    yield from (_policies(rng, i) for i in range(_SETTINGS))
    yield from (_simulation(rng, i) for i in range(_RUNS))
    yield from (_cluster(rng, i) for i in range(_CLUSTERS))
    yield from (_placement(rng, i) for i in range(_PLACEMENTS))
    yield from _others()


def _setting(rng: random.Random, kind: str | None = None) -> tuple[str, list[str], float]:
    """A profile, options and the load."""
    profile = kind or rng.choice(list(_KINDS))
    least, most, rate = _KINDS[profile]
    workers = rng.choice([1, 2, 3, 5, 8, 13])
    load = round(workers * rate * math.exp(rng.uniform(-2.0, 0.3)), 2)
    words = ["--profiles", profile, "--slo-ms", f"{rng.uniform(least, most):.4g}"]
    return profile, [*words, "--workers", str(workers)], load


def _policies(rng: random.Random, number: int) -> Case:
    _, words, load = _setting(rng)
    words += ["--load", f"{load:g}"]
    words += ["--dispatch", rng.choice(["round-robin", "central-queue", "shortest-queue"])]
    words += rng.choice([[], [], ["--violation-price", "2.5"], ["--overhead-ms", "1.3"]])
    if "round-robin" in words:
        words += rng.choice([[], ["--batching", "variable"], ["--late", "serve"],
                             ["--service", "distribution"], ["--paper"],
                             ["--arrivals", "negative-binomial:3.3"],
                             ["--max-violation", "0.013"]])
    words += ["--grid", "fixed:37", "--max-queue", "17", "--headroom", "0", "--out", "out",
              "--json"]
    after: list[tuple[str, ...]] = [("analyze", "out", "--json")]
    if number % 8 == 0:
        after += [("verify", "out", "--all", "--json"), ("validate", "out"),
                  ("export", "c", "out", "--out", "policies.h")]
    return Case(f"generate-{number:02d}", {}, (("generate", *words), *after))


def _simulation(rng: random.Random, number: int) -> Case:
    profile, words, load = _setting(rng, "digits-cpu" if number % 3 else None)
    words += ["--load", f"{load:g}", "--duration-s", f"{min(3000 / load, 60):.3g}"]
    first, second = (one.format(rng.choice(_models(profile))) for one in rng.sample(_SCHEMES, 2))
    words += rng.choice([[], ["--monitor", "on"], ["--service", "distribution"],
                         ["--network-ms", "0.7"],
                         ["--arrivals", "mmpp:ratio=4,burst-ms=500,share=0.2"],
                         ["--slow-spells", "share=0.05,factor=2,length-ms=300"]])
    words += ["--seed", str(rng.randrange(1000)), "--json"]
    return Case(f"simulate-{number:02d}", {}, (
        ("simulate", *words, "--scheduler", first, "--timeline", "timeline.json", "--request-log",
         "requests.csv"), ("simulate", *words, "--scheduler", first, "--scheduler", second)))


def _models(profile: str) -> list[str]:
    from ramsis import load_profile

    return [model.name for model in load_profile(profile).models]


def _scenario(rng: random.Random) -> dict[str, Any]:
    kinds = ["gpu", "cpu"][: rng.choice([1, 1, 2])]
    models = []
    for i in range(rng.randint(2, 7)):
        first = rng.uniform(2.0, 40.0)
        models.append({
            "name": f"m{i}", "memory_mb": rng.choice([200, 350, 600]),
            "load_ms": round(rng.uniform(10, 300), 1),
            "latency": [{"worker_type": kind, "batch": batch,
                         "latency_ms": round(first * (1 + k) * (0.6 + 0.4 * batch), 3)}
                        for k, kind in enumerate(kinds) for batch in (1, 2, 4)]})
    streams = [{"name": f"s{i}", "model": model["name"], "slo_ms": round(rng.uniform(60, 400), 1),
                "workload": {"load_qps": round(rng.uniform(1, 30), 2)}}
               for i, model in enumerate(models)]
    return {"format": "ramsis.scenario/1", "name": "drawn", "duration_s": 7.3,
            "worker_types": [{"name": kind, "count": rng.randint(1, 4), "memory_mb": 1000}
                             for kind in kinds],
            "models": models, "streams": streams}


def _cluster(rng: random.Random, number: int) -> Case:
    chosen = rng.sample(_SCHEDULERS, 3)
    words = [word for one in chosen for word in ("--scheduler", one)]
    return Case(f"cluster-{number:02d}", {"scenario.json": _scenario(rng)}, (
        ("simulate", "scenario.json", *words, "--seed", str(rng.randrange(99)), "--bound",
         "--json", "--timeline", "timeline.json", "--csv", "rows.csv"),))


def _placement(rng: random.Random, number: int) -> Case:
    preset = rng.choice([(), (), ("--preset", "proteus"), ("--preset", "infadapter"),
                         ("--preset", "jellyfish"), ("--preset", "nexus")])
    return Case(f"place-{number:02d}", {"scenario.json": _scenario(rng)}, (
        ("scenario", "placement", "scenario.json", "--out", "problem.json", "--window-s", "1"),
        ("place", "problem.json", *preset, "--out", "placement.json", "--json"),
        ("simulate", "--placement", "placement.json", "--duration-s", "5", "--json")))


def _others() -> Iterator[Case]:
    digits = ("--profiles", "digits-cpu", "--slo-ms", "24.7", "--workers", "3")
    yield Case("bound", {}, (
        ("bound", *digits, "--load", "313,1711.5,6003", "--json"),
        ("bound", *digits, "--load", "6003", "--violation-price", "1", "--json"),
        ("bound", "--profiles", "digits-cpu", "--slo-ms", "15:0.3,25:0.7", "--workers", "3",
         "--load", "801.3", "--json")))
    yield Case("capacity", {}, (
        ("capacity", "--profiles", "digits-cpu", "--slo-ms", "25", "--load", "2003",
         "--min-accuracy", "0.95", "--duration-s", "5", "--scheduler", "round-robin:headroom=0",
         "--scheduler", "greedy", "--json"),))
    yield Case("frontier", {}, (
        ("frontier", *digits, "--load", "7003", "--queries", "50000", "--json"),))
    yield Case("classes", {}, (
        ("generate", "--profiles", "old=digits-cpu,new=digits-cpu", "--workers", "old=2,new=1",
         "--slo-ms", "15:0.3,25:0.7", "--load", "801.3", "--headroom", "0", "--out", "out",
         "--json"),
        ("verify", "out", "--json"), ("analyze", "out", "--json")))
    yield Case("words", {}, (
        ("profile", "show", "digits-cpu", "--json"), ("profile", "check", "digits-cpu"),
        *(("help", topic)
          for topic in ("profiles", "traces", "schedulers", "processes", "files"))))
    yield Case("audit", {}, (
        ("simulate", *digits, "--load", "1303", "--scheduler", "greedy", "--duration-s", "5",
         "--request-log", "requests.csv", "--json"),
        ("audit", "requests.csv", "--profiles", "digits-cpu", "--workers", "3", "--scheduler",
         "central-queue:max_queue=8,grid=fixed:20,headroom=0", "--json")))
    sweep = ('profiles = "digits-cpu"\nworkers = [1, 3]\nslo_ms = [24.7]\n'
             'load_qps = [313, 1711.5]\nduration_s = 3\n'
             'scheduler = ["greedy", "round-robin:max_queue=8,grid=fixed:20,headroom=0"]\n')
    yield Case("sweep", {"sweep.toml": sweep}, (
        ("sweep", "sweep.toml", "--out", "out", "--processes", "1", "--json"),))
    for preset in ("gpu-sharing", "usher", "igniter", "alpaserve", "infaas"):
        yield Case(f"digits-{preset}", {}, (
            ("place", "digits", "--preset", preset, "--out", "placement.json", "--json"),))
    yield Case("digits-place", {}, (
        ("place", "digits", "--out", "placement.json", "--json"),
        ("simulate", "--placement", "placement.json", "--duration-s", "5", "--json")))


def played(case: Case) -> tuple[str, dict[str, str]]:
    """What a case prints and writes, by name."""
    from ramsis.cli.main import main as run

    found, before = dict[str, str](), os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, document in case.files.items():
                Path(name).write_text(
                    document if isinstance(document, str) else json.dumps(document))
            for i, command in enumerate(case.commands):
                printed, code = StringIO(), cast("Any", 0)
                with redirect_stdout(printed), redirect_stderr(StringIO()):
                    try:
                        run(command)
                    except SystemExit as left:
                        code = left.code
                found[f"{i}-{command[0]}.txt"] = f"exit {code}\n{printed.getvalue()}"
            for path in sorted(Path().rglob("*")):
                if path.is_file() and path.name not in case.files:
                    found[f"files/{path}"] = path.read_bytes().decode(errors="replace")
        finally:
            os.chdir(before)
    return case.name, {name: _TOOK.sub(_timeless, text) for name, text in found.items()}


def _timeless(found: re.Match[str]) -> str:
    name = found[1].strip('"=: ')
    return found[0] if name in _OWN_SECONDS else found[1] + "TIME"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=["keep", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", help="cases whose name begins so")
    parser.add_argument("--without", action="append", default=[],
                        help="fields of JSON documents that are not compared")
    given = parser.parse_args()
    chosen = [case for case in cases() if case.name.startswith(tuple(given.only or [""]))]
    kept, differ, begun = given.folder.absolute(), list[str](), time.monotonic()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for i, (name, found) in enumerate(pool.map(played, chosen)):
            if given.what == "keep":
                shutil.rmtree(kept / name, ignore_errors=True)
                for path, text in found.items():
                    (kept / name / path).parent.mkdir(parents=True, exist_ok=True)
                    (kept / name / path).write_text(text, newline="")
            else:
                differ += _differences(kept / name, found, set(given.without))
            print(f"\r{i + 1} of {len(chosen)} cases, {time.monotonic() - begun:.0f} s",
                  end="", file=sys.stderr)
    print(file=sys.stderr)
    for line in differ:
        print(line)
    print(f"{len(chosen)} cases, {len(differ)} files differ" if given.what == "compare"
          else f"{len(chosen)} cases kept in {given.folder}")
    raise SystemExit(bool(differ))


def _differences(kept: Path, found: dict[str, str], without: set[str]) -> list[str]:
    """Return a line for each file of a case that differs, or that only one run has."""
    before = {str(path.relative_to(kept)): path.read_bytes().decode()
              for path in kept.rglob("*") if path.is_file()}
    lines = [f"{kept.name}: {name}: only {'now' if name in found else 'before'}"
             for name in sorted(before.keys() ^ found.keys())]
    for name in sorted(before.keys() & found.keys()):
        texts = [_stripped(files[name], without) for files in (before, found)]
        if texts[0] != texts[1]:
            pair = zip(*(text.splitlines() for text in texts), strict=False)
            line = next(((was, now) for was, now in pair if was != now), ("(length)", ""))
            lines.append(f"{kept.name}: {name}: {line[0][:120]!r} is now {line[1][:120]!r}")
    return lines


def _stripped(text: str, without: set[str]) -> str:
    """Return a JSON document, after the exit code if there is one, less some of its fields."""
    first, text = text.split("\n", 1) if text.startswith("exit ") else ("", text)
    try:
        document = json.loads(text)
    except ValueError:
        return first + text
    return first + json.dumps(_less(document, without), indent=1)


def _less(value: Any, without: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _less(item, without) for name, item in value.items() if name not in without}
    return [_less(item, without) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
