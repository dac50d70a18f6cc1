"""The list of all figures of the documentation, and the pictures of its tutorials.

The list is put into docs/gallery.md as the documentation is built. `python scripts/gallery.py`
draws the pictures of docs/pictures, some minutes; that of a report page needs Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
_IMAGE = re.compile(r"!\[(?P<alt>[^]]*)\]\((?P<file>[^)]+\.(?:png|svg))\)")
_SERVED = ["--profiles", "digits-cpu", "--slo-ms", "25"]


def gallery(docs: Path) -> str:
    """Return a heading for each page with figures, and each figure once, in Markdown."""
    parts = []
    shown: set[Path] = set()
    for page in sorted(docs.rglob("*.md")):
        text = page.read_text()
        images = {(page.parent / match["file"]).resolve(): match["alt"]
                  for match in _IMAGE.finditer(text)}
        images = {file: alt for file, alt in images.items() if file not in shown}
        if page.name == "gallery.md" or not images:
            continue
        shown.update(images)
        title = re.search(r"(?m)^# (.+)$", text)
        parts.append(f"## [{title[1] if title else page.stem}]({page.relative_to(docs)})\n")
        parts += [f"![]({file.relative_to(docs).as_posix()})\n\n*{alt}*\n"
                  for file, alt in images.items()]
    return "\n".join(parts)


def draw(folder: Path) -> None:
    """Draw a decision table, a plan's search, and the head of its report."""
    from ramsis.policy import read_set

    def run(*arguments: str, cwd: str) -> None:
        subprocess.run([sys.executable, "-m", "ramsis", *arguments], check=True, cwd=cwd)

    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        run("generate", *_SERVED, "--workers", "4", "--dispatch", "central-queue", "--load",
            "3200", "--out", "policies", cwd=place)
        policies = read_set(Path(place) / "policies")
        policies.levels[0].stations[0].policy.plot().savefig(folder / "policy.png", dpi=110)
        run("plan", *_SERVED, "--load", "800", "--min-accuracy", "0.95", "--out", "plan",
            "--plot", str(folder.resolve() / "plan.png"), cwd=place)
        browser = shutil.which("chromium")
        if browser is None:
            sys.exit("no Chromium here: report.png is as it was")
        subprocess.run([
            browser, "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=960,900",
            f"--screenshot={folder.resolve() / 'report.png'}",
            "--virtual-time-budget=4000", f"file://{place}/plan/report.html"], check=True)


if __name__ == "__main__":
    draw(DOCS / "pictures")
