"""Commands in a folder whose files are named as libraries are, and as this project's own.

Each file notes that it was imported. The commands start processes of several kinds; none may run
one of the files. Beside them lie settings that libraries look for in the current folder, and a
package that says it extends them; neither may be taken.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ramsis import profiles
from ramsis.runtime.replan import Replanner
from ramsis.sim.registry import GROUP
from tests.serving.servers import make, profile

_THIRD = ("numpy", "scipy", "numba", "click", "rich", "pandas", "highspy", "networkx", "pulp",
          "jsonschema", "orjson", "uvicorn", "uvloop", "starlette", "httptools", "h11", "ray",
          "prometheus_client", "onnxruntime", "psutil", "ramsis", "placement_milp", "tests",
          "sitecustomize", "usercustomize", "__mp_main__", "tomli", "zstandard", "fsspec")
_NOTES = """import os, sys
with open(os.environ["PLANTED"], "a") as stream:
    stream.write(f"{__name__} in {sys.argv}\\n")
"""
_EXTENSION = "planted_extension"
_OFFERS = f"[numba_extensions]\ninit = {_EXTENSION}:run\n[{GROUP}]\nlru = {_EXTENSION}:run\n"
_CACHE = "planted-cache"
_SETTINGS = {".numba_config.yaml": f"cache_dir: ./{_CACHE}\n",
             "matplotlibrc": "svg.fonttype: none\n"}
_SMALL = ("--profiles", "profile.json", "--slo-ms", "100", "--workers", "1", "--grid", "fixed:10",
          "--max-queue", "4", "--headroom", "0")
_SPEC = """profiles = "profile.json"
workers = [1, 2]
slo_ms = 100
load_qps = 50
scheduler = "jellyfish-plus"
duration_s = 0.2
seeds = 1
"""
_SERVE = ("serve", "serving/policies", "--variants", "serving/variants.toml", "--code",
          "summing:fast,summing:slow")
COMMANDS: dict[str, tuple[str, ...]] = {
    "generate": ("generate", *_SMALL, "--load", "50,100", "--out", "made", "--processes", "2"),
    "sweep": ("sweep", "sweep.toml", "--out", "swept", "--processes", "2"),
    "profile plot": ("profile", "plot", "profile.json", "--out", "figure.svg"),
    "serve --check": (*_SERVE, "--check"),
    "serve --calibrate": (*_SERVE, "--calibrate", "calibrated.json", "--calibrate-seconds", "0.2"),
}


class Imported(NamedTuple):
    """A command that imported what it should not, or failed."""

    command: str
    what: str


def plant(folder: Path) -> Path:
    """A folder with such files beside good input."""
    folder.mkdir(parents=True)
    for name in {*sys.stdlib_module_names, *_THIRD}:
        (folder / f"{name}.py").write_text(_NOTES)
    offered = folder / f"{_EXTENSION}-1.0.dist-info"
    offered.mkdir()
    (offered / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_EXTENSION}\nVersion: 1.0\n")
    (offered / "entry_points.txt").write_text(_OFFERS)
    (folder / f"{_EXTENSION}.py").write_text(f"{_NOTES}\ndef run():\n    pass\n")
    for name, text in _SETTINGS.items():
        (folder / name).write_text(text)
    profiles.save(profile(), folder / "profile.json")
    (folder / "sweep.toml").write_text(_SPEC)
    (folder / "serving").mkdir()
    make(folder / "serving")
    for name in _THIRD:  # the variants' functions are looked for there
        (folder / "serving" / f"{name}.py").write_text(_NOTES)
    return folder


def run_planted(folder: Path) -> Iterator[Imported]:
    """Run the commands in the folder, by a console script as installers write it."""
    script = folder.with_name("ramsis-script")  # not python -P, which child processes inherit
    script.write_text("from ramsis.__main__ import main\nif __name__ == '__main__':\n    main()\n")
    for name, words in COMMANDS.items():
        environment = {**os.environ, "PLANTED": str(folder / "planted.txt")}
        ran = subprocess.run([sys.executable, str(script), *words], cwd=folder,
                             env=environment, capture_output=True, text=True, timeout=300)
        if ran.returncode:
            yield Imported(name, f"exit code {ran.returncode}: {ran.stderr[-300:]}")
        yield from _notes(folder, name)


def by_module(folder: Path) -> Iterator[Imported]:
    """``python -m ramsis`` there: what Python imports before this package is not looked at."""
    kept = {"csv", "gzip", "heapq", "json", "random", "signal", "struct", "tomllib", *_THIRD,
            _EXTENSION}
    with tempfile.TemporaryDirectory() as other:
        copied = Path(other) / "planted"
        shutil.copytree(folder, copied)
        for path in copied.glob("*.py"):
            if path.stem not in kept or path.stem == "ramsis":
                path.unlink()
        environment = {**os.environ, "PLANTED": str(copied / "planted.txt")}
        for name in ("generate", "sweep"):
            ran = subprocess.run(
                [sys.executable, "-m", "ramsis", *COMMANDS[name], "--out", "by-module"],
                cwd=copied, env=environment, capture_output=True, text=True, timeout=300)
            if ran.returncode:
                yield Imported(f"python -m: {name}",
                               f"exit code {ran.returncode}: {ran.stderr[-300:]}")
        yield from _notes(copied, "python -m")


def replanned(folder: Path) -> Iterator[Imported]:
    """Have the replanner make a set; the process of this test is to be in the folder."""
    errors: list[Exception] = []
    os.environ["PLANTED"] = str(folder / "planted.txt")
    with Replanner("serving/policies", _SMALL, on_error=errors.append) as replanner:
        replanner.plan_set("replanned", _SMALL, [60.0])
        if not replanner.wait(300) or errors:
            yield Imported("replanner", f"failed: {errors}")
    yield from _notes(folder, "replanner")


def _notes(folder: Path, command: str) -> Iterator[Imported]:
    noted = folder / "planted.txt"
    if noted.exists():
        for line in sorted(set(noted.read_text().splitlines())):
            yield Imported(command, f"imported {line}")
        noted.unlink()
    if (folder / _CACHE).exists():
        yield Imported(command, "has its compiled code there, as a file there says")
    figure = folder / "figure.svg"
    if figure.exists() and "<text" in figure.read_text():
        yield Imported(command, "draws as a file there says")
