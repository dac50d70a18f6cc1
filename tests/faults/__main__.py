"""Commands that write: killed often, on a full disk, and several at once.

``python -m tests.faults --kills 100`` kills each a hundred times at random moments.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.disk import full_disk, several_writers, small_disk
from tests.faults.kills import WRITERS, begun, ended, killed_often, preloaded
from tests.fuzz.kit import make_kit


def main() -> int:
    """Kill the commands; 1 if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100, help="of each command")
    parser.add_argument("--full-disk", type=int, default=10, help="runs of each with little space")
    parser.add_argument("--writers", type=int, default=3, help="processes at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(WRITERS), choices=list(WRITERS))
    given = parser.parse_args()
    preloaded()
    root = Path(tempfile.mkdtemp(prefix="ramsis-kills-"))
    count = 0
    try:
        kit = make_kit(root / "kit", lambda words: ended(begun(words)))
        for name in given.only:
            bad = 0
            for one in killed_often(WRITERS[name], kit, root, given.kills, given.seed):
                bad += 1
                print(f"{name}, after {1000 * one.after_s:.1f} ms: {one.what}", flush=True)
            for one in full_disk(WRITERS[name], kit, root, given.full_disk, given.seed):
                bad += 1
                print(f"{name}, full disk: {one.what}", flush=True)
            print(f"{name}: {given.kills} kills, {given.full_disk} full disks, {bad} findings",
                  flush=True)
            count += bad
        if given.writers:
            found = list(several_writers(kit, root, given.writers))
            count += len(found)
            print(f"{given.writers} writers: {len(found)} findings",
                  *(one.what for one in found), sep="\n", flush=True)
            wrong = small_disk(kit, root)
            count += bool(wrong)
            print("a disk of 32 kB:", "cannot be mounted here" if wrong is None else wrong or "ok",
                  flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
