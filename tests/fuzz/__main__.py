"""Many damaged files and odd command lines: ``python -m tests.fuzz --budget 1000 --seed 0``.

Cases are numbered from the seed, so that a run is resumed with ``--seed N`` and one is repeated
with ``--seed N --budget 1``. Each runs in a child process with at most 1 GB more than it needs to
start; a child that ends or hangs is one of the findings, and the next goes on behind it.
"""

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.fuzz.amounts import amount_cases, examine_alone
from tests.fuzz.cases import BYTES, SECONDS, Case, case_of, examine, told
from tests.fuzz.kit import make_kit
from tests.fuzz.named import named_cases


def main() -> int:
    """Run the cases; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--budget", type=int, default=1000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--only", default="", metavar="WORD",
                        help="only kinds of files with this in their names")
    parser.add_argument("--names", action="store_true",
                        help="instead: names of code in every field of every file")
    parser.add_argument("--amounts", action="store_true",
                        help="instead: numbers that are too large, in every option and field")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ramsis-fuzz-"))
    try:
        kit = make_kit(root / "kit", told)
        if given.names:
            return _each(named_cases(kit), examine, kit, root)
        if given.amounts:
            return _each(amount_cases(kit), examine_alone, kit, root)
        first, last, found = given.seed, given.seed + given.budget, 0
        start = time.monotonic()
        while first < last:
            done, bad = _child(range(first, last), kit, root, given.only)
            found += bad
            first = done
            if first % 100 == 0 or first == last:
                print(f"{first - given.seed} cases, {found} findings, "
                      f"{time.monotonic() - start:.0f} s; next: --seed {first}", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 1 if found else 0


def _each(cases: Iterable[Case], answer: Callable[[Case, Path, Path], list[str]], kit: Path,
          root: Path) -> int:
    """Try all of the cases; 1 if anything was found."""
    count = found = 0
    for case in cases:
        count += 1
        for one in answer(case, kit, root / "case"):
            found += 1
            print(f"case {count}: {one} :: {' '.join(case.words)!a}", flush=True)
        if count % 500 == 0:
            print(f"{count} cases, {found} findings", flush=True)
    print(f"{count} cases, {found} findings")
    return int(found > 0)


def _child(numbers: range, kit: Path, root: Path, only: str) -> tuple[int, int]:
    """Cases up to the next hundred in a child: the number to go on with, and the findings."""
    first = numbers.start
    last = min(numbers.stop, first - first % 100 + 100)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _cases(range(first, last), kit, root, write, only)
    os.close(write)
    reached, bad = first, 0
    with os.fdopen(read) as stream:
        for line in stream:
            word, _, text = line.rstrip("\n").partition(" ")
            if word == "begin":
                reached = int(text)
                continue
            bad += 1
            print(f"--seed {reached}: {text}", flush=True)
    _, status = os.waitpid(child, 0)
    if status == 0:
        return last, bad
    how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "left"
    print(f"--seed {reached}: the process ended ({how}): {case_of(reached, kit, only).words}",
          flush=True)
    return reached + 1, bad + 1


def _cases(numbers: range, kit: Path, root: Path, pipe: int, only: str) -> None:
    """The child: tells what it begins and what it finds, and leaves."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with os.fdopen(pipe, "w", buffering=1) as stream:
        for number in numbers:
            stream.write(f"begin {number}\n")
            signal.signal(signal.SIGXCPU, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_AS, (used + 2 * BYTES, resource.RLIM_INFINITY))
            spent = int(time.process_time())  # for code that no alarm interrupts
            resource.setrlimit(resource.RLIMIT_CPU, (spent + 3 * SECONDS, resource.RLIM_INFINITY))
            case = case_of(number, kit, only)
            for one in examine(case, kit, root / "case"):
                text = " | ".join(one.split("\n"))
                stream.write(f"found {text} :: {' '.join(case.words)!a}\n")
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
