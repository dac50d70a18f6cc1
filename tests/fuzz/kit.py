"""A folder with a valid file of every kind that the commands read."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

from ramsis import profiles
from tests.fuzz.commands import CLUSTER, SHORT, SMALL
from tests.fuzz.files import TEXTS, documents
from tests.synthesis.samples import tiny_profile

Ran = Callable[[list[str]], tuple[int, str]]
"""Runs a command line in this process: its exit code, and what it printed."""


def measured(batch: int) -> int:
    """A model to measure."""
    return sum(range(100 * batch))


def make_kit(folder: Path, run: Ran) -> Path:
    """Write the files."""
    for name, text in {**TEXTS, **documents()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("{kit}", str(folder)))
    profiles.save(tiny_profile(), folder / "profile.json")
    with gzip.GzipFile(folder / "times.txt.gz", "wb", mtime=0) as stream:
        stream.write((folder / "times.txt").read_bytes())
    import numpy as np

    np.savez(folder / "data.npz", image=np.zeros((3, 64), dtype=np.float32))

    def made(words: list[str], printed: str = "") -> None:
        code, out = run([word.replace("{kit}", str(folder)) for word in words])
        assert code == 0, words
        if printed:
            (folder / printed).write_text(out)

    made(["generate", "--profiles", "{kit}/profile.json", *SMALL, "--load", "100,200", "--out",
          "{kit}/set"])
    made(["generate", "--profiles", "{kit}/profile.json", "--slo-ms", "100", "--workers", "2",
          "--dispatch", "central-queue", "--max-queue", "4", "--headroom", "0", "--load", "100",
          "--out", "{kit}/centrals"])
    made(["place", "{kit}/problem.json", "--out", "{kit}/placement.json"])
    made(["place", "{kit}/shared-problem.json", "--preset", "usher", "--out", "{kit}/shared.json"])
    made(["sweep", "{kit}/sweep.toml", "--out", "{kit}/swept", "--processes", "1"])
    made(["simulate", *CLUSTER, *SHORT, "--scheduler", "jellyfish-plus", "--request-log",
          "{kit}/log.csv", "--json"], "simulated.json")
    made(["capacity", "--profiles", "{kit}/profile.json", "--slo-ms", "100", *SHORT, "--scheduler",
          "jellyfish-plus", "--seeds", "1", "--max-violation", "0.5", "--json"], "needed.json")
    shutil.copy(folder / "set" / "round-robin-00100qps.json", folder / "policy.json")
    shutil.copy(folder / "centrals" / "central-queue-00100qps.json", folder / "central.json")
    return folder
