"""A disk that is full, and several writers of one folder."""

import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ramsis import policy
from tests.faults.kills import (
    Finding,
    Writer,
    begun,
    content,
    differences,
    ended,
    made_ready,
    whole_run,
    words_of,
)
from tests.fuzz.commands import SMALL


def full_disk(writer: Writer, kit: Path, root: Path, times: int, seed: int) -> Iterator[Finding]:
    """No file may grow beyond some bytes: exit code 2, and all is as it was or whole."""
    rng = random.Random(seed)
    old, wanted, _ = whole_run(writer, kit, root)
    largest = max(map(len, wanted.values()))
    for _ in range(times):
        work = root / "work"
        made_ready(work, old)
        most = rng.randrange(largest)

        def limited(most: int = most) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        code = ended(begun(words_of(writer.words, kit, work), limited))
        found = content(work)
        if code != 2 and not (code == 1 and writer.words[0] == "sweep"):
            yield Finding(f"exit code {code} with files of at most {most} bytes", 0.0)
        for name, held in found.items():
            if name not in writer.varies and held not in (old.get(name), wanted.get(name)):
                if name.startswith("sweep/") or name.endswith((".partial", "manifest.json")):
                    continue
                yield Finding(f"{name} is neither the old nor the new file at {most} bytes", 0.0)
        if lost := old.keys() - found.keys():
            yield Finding(f"lost {sorted(lost)} at {most} bytes", 0.0)
        if left := [name for name in found if "/." in f"/{name}"]:
            yield Finding(f"left {left} at {most} bytes", 0.0)


def written_at_once(writer: Writer, kit: Path, root: Path, number: int) -> Iterator[Finding]:
    """The same command by several processes at once: all succeed, and all is as after one."""
    if not number:
        return
    old, wanted, _ = whole_run(writer, kit, root)
    work = root / "work"
    made_ready(work, old)
    codes = [ended(child) for child in
             [begun(words_of(writer.words, kit, work)) for _ in range(number)]]
    if any(codes):
        yield Finding(f"exit codes {codes}", 0.0)
    if wrong := differences(content(work), wanted, writer):
        yield Finding(wrong, 0.0)


def small_disk(kit: Path, root: Path) -> str | None:
    """A set made on a file system of 32 kB; what is wrong, or None where none can be mounted."""
    work = root / "small"
    work.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "ramsis", "generate", "--profiles",
               str(kit / "profile.json"), *SMALL, "--load", "100:1000:50", "--out",
               str(work / "set")]
    script = 'mount -t tmpfs -o size=32k none "$0" && shift 0 && "$@"; code=$?; ' \
             'ls -a "$0/set"; exit $code'
    ran = subprocess.run(["unshare", "-rm", "sh", "-c", script, str(work), *command], text=True,
                         capture_output=True, check=False)
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        return None
    lines = ran.stderr.splitlines()
    if ran.returncode != 2 or len([one for one in lines if one.startswith("error: ")]) != 1:
        return f"exit code {ran.returncode}: {ran.stderr}"
    if "Traceback" in ran.stderr or ".ramsis-tmp" in ran.stdout:
        return ran.stderr + ran.stdout
    return ""


def several_writers(kit: Path, root: Path, number: int) -> Iterator[Finding]:
    """Sets and sweeps made by several processes at once in one folder."""
    work = root / "work"
    made_ready(work, {})
    loads = [str(100 + 25 * i) for i in range(2 * number)]
    children = [begun(["generate", "--profiles", str(kit / "profile.json"), *SMALL, "--load",
                       ",".join(loads[i::number]), "--out", str(work / "set")])
                for i in range(number)]
    codes = [ended(child) for child in children]
    if any(codes):
        yield Finding(f"generate: exit codes {codes}", 0.0)
    elif sorted(policy.validate_set(work / "set").loads()) != sorted(map(float, loads)):
        yield Finding("generate: levels are lost", 0.0)
    sweep = ["sweep", str(kit / "sweep.toml"), "--processes", "1", "--out"]
    alone = ended(begun([*sweep, str(work / "alone")]))
    codes = [ended(child) for child in
             [begun([*sweep, str(work / "sweep")]) for _ in range(number)]]
    if any(codes) or alone:
        yield Finding(f"sweep: exit codes {codes}", 0.0)
    for file in os.listdir(work / "alone"):
        if (work / "alone" / file).is_file() and (
                (work / "alone" / file).read_bytes() != (work / "sweep" / file).read_bytes()):
            yield Finding(f"sweep: {file} differs", 0.0)
    if left := [name for name in content(work) if "/." in f"/{name}"]:
        yield Finding(f"left {left}", 0.0)
