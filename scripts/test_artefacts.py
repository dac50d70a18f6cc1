"""Wheel and source archive as users get them: installed in an empty environment, and tested.

python -m build && python scripts/test_artefacts.py [--dist dist] [--tests PATH ...]

A new virtual environment gets the wheel. Then the source archive is unpacked, its packages are
taken out, and its tests run with the installed wheel: what is tested is what was built, and
nothing of the present folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

PACKAGES = ("ramsis", "placement_milp")
SHIPPED = ("ramsis/profiles/shipped/digits-cpu.json", "ramsis/py.typed",
           "ramsis/profiles/shipped/sharing/v100.csv",
           "ramsis/policy/policy-1.schema.json", "ramsis/policy/manifest-1.schema.json")
"""Files that are no modules, and that an installation must have."""


class Installation:
    """An environment of its own with the wheel."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=True)
        self.folder, self.wheel = folder, wheel
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        self.packages = Path(self.run(
            "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())

    def install(self, extras: str = "") -> None:
        """Install the wheel with some extras."""
        self.run("-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                 f"{self.wheel}{extras}")

    def run(self, *arguments: str, cwd: Path | None = None) -> str:
        """What a command of this environment prints; it must succeed."""
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([self.python, *arguments], check=True, cwd=cwd or self.folder,
                              env=clean, stdout=subprocess.PIPE, text=True).stdout


def unpacked(archive: Path, folder: Path) -> Path:
    """The source archive without its packages: tests, pages and scripts."""
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    for name in (*PACKAGES, "profiles"):
        shutil.rmtree(root / name)
    return root


def check(installed: Installation) -> None:
    """Refuse an installation that lacks files, or takes its modules from elsewhere."""
    for name in SHIPPED:
        if not (installed.packages / name).is_file():
            sys.exit(f"error: {installed.wheel.name}: missing: {name}")
    found = Path(installed.run("-c", "import ramsis; print(ramsis.__file__)").strip())
    if installed.packages.resolve() not in found.resolve().parents:
        sys.exit(f"error: ramsis is imported from {found}, not from the wheel")


def only(folder: Path, pattern: str) -> Path:
    """The one file of a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        sys.exit(f"error: {folder}: {len(found)} files {pattern}; allowed: one (python -m build)")
    return found[0].resolve()


def tested(installed: Installation, root: Path, tests: Sequence[str]) -> int:
    """Run tests of the source archive with the installed wheel; the exit code of pytest."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([installed.python, "-m", "pytest", "-q", "-n", "auto", *tests],
                          cwd=root, env=clean, check=False).returncode


def main() -> int:
    """Install and test."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    parser.add_argument("--tests", nargs="*", default=["tests"], metavar="PATH")
    given = parser.parse_args()
    wheel, archive = only(given.dist, "*.whl"), only(given.dist, "*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        installed = Installation(Path(folder, "env"), wheel)
        installed.install()
        check(installed)
        if not given.tests:
            return 0
        installed.install("[test,plot]")
        root = unpacked(archive, Path(folder, "source"))
        return tested(installed, root, given.tests)


if __name__ == "__main__":
    sys.exit(main())
