"""Commands that write: killed and interrupted often, on a full disk, and several at once.

``python -m tests.faults --kills 100`` kills each a hundred times at random moments;
``--kills 0 --full-disk 0 --writers 0 --servers 0 --interrupts 10`` only interrupts.
"""

import argparse
import contextlib
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.disk import full_disk, several_writers, small_disk, written_at_once
from tests.faults.interrupts import INTERRUPTED, interrupted_often
from tests.faults.kills import WRITERS, killed_often, preloaded, told
from tests.faults.served import killed_servers
from tests.faults.targets import odd_targets
from tests.fuzz.kit import make_kit
from tests.serving.servers import make, running


def main() -> int:
    """Kill the commands; 1 if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100, help="of each command")
    parser.add_argument("--seconds", type=float, default=math.inf,
                        help="after which a command is not killed again")
    parser.add_argument("--full-disk", type=int, default=10, help="runs of each with little space")
    parser.add_argument("--writers", type=int, default=3, help="processes at once")
    parser.add_argument("--servers", type=int, default=10, help="servers that are killed")
    parser.add_argument("--interrupts", type=int, default=6, help="of each command, by SIGINT")
    parser.add_argument("--targets", action="store_true",
                        help="write to links, pipes, devices and files with permissions, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(WRITERS), choices=list(WRITERS))
    given = parser.parse_args()
    preloaded()
    root = Path(tempfile.mkdtemp(prefix="ramsis-kills-"))
    count = 0
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        kit = make_kit(root / "kit", lambda words: told(words, root / "printed"))
        beside = stack.enter_context(running(make(_new(kit / "serving"), slo_ms=200.0)))
        (kit / "url.txt").write_text(f"http://{beside.host}:{beside.port}")
        for name in given.only:
            bad, start = 0, time.monotonic()
            kills = 0
            for several in killed_often(WRITERS[name], kit, root, given.kills, given.seed,
                                        given.seconds):
                kills += 1
                for one in several:
                    bad += 1
                    print(f"{name}, after {1000 * one.after_s:.1f} ms: {one.what}", flush=True)
            for one in full_disk(WRITERS[name], kit, root, given.full_disk, given.seed):
                bad += 1
                print(f"{name}, full disk: {one.what}", flush=True)
            for one in written_at_once(WRITERS[name], kit, root, given.writers):
                bad += 1
                print(f"{name}, {given.writers} at once: {one.what}", flush=True)
            if given.targets:
                for one in odd_targets(WRITERS[name], kit, root):
                    bad += 1
                    print(f"{name}, {one.what}", flush=True)
            print(f"{name}: {kills} kills, {given.full_disk} full disks, {bad} findings, "
                  f"{time.monotonic() - start:.0f} s", flush=True)
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
        for name in INTERRUPTED if given.interrupts else ():
            found = [one for several in interrupted_often(
                name, kit, root, given.interrupts, given.seed, given.seconds) for one in several]
            count += len(found)
            print(f"{name}: {given.interrupts} interrupts, {len(found)} findings",
                  *(f"after {1000 * one.after_s:.0f} ms: {one.what}" for one in found), sep="\n",
                  flush=True)
        found = list(killed_servers(root, given.servers, given.seed))
        print(f"{given.servers} servers killed: {len(found)} findings",
              *(one.what for one in found), sep="\n", flush=True)
        count += len(found)
    return 1 if count else 0


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
