"""Every number of every command line and file, in turn with one that is far too large.

Such a number may be refused, or the command may take long; it must not take more memory than any
problem of ordinary size. Each case runs in a process of its own, whose memory is thus its own.
"""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import click

from tests.fuzz.cases import BYTES, NEVER, SECONDS, Case, command_of, examine
from tests.fuzz.commands import COMMANDS, READERS
from tests.fuzz.named import changed

_LARGE = ("1000000000", "1e300", "1000000", "1000000000000")
_WORDS = {"grid": "fixed:{}", "spells": "share=0.5,factor={},length-ms=1",
          "process": "negative-binomial:{}", "dimension": "a={}",
          "scheduler": "central-queue:max_queue={}", "loads": "1:{}:1", "slos": "{}:0.5,100:0.5"}
_SLOW = f"took more than {SECONDS} s"
"""A large problem takes as long as it takes."""


def amount_cases(kit: Path) -> Iterator[Case]:
    """A case for each number and each of the large ones."""
    for name in sorted(COMMANDS):
        words = list(COMMANDS[name])
        for option in command_of(words).params:
            if not isinstance(option, click.Option) or option.is_flag or NEVER & set(option.opts):
                continue
            if isinstance(option.type, click.Path | click.Choice) or option.type.name == "text":
                continue
            for large in _LARGE:
                for form in {"{}", _WORDS.get(option.type.name, "{}")}:
                    yield Case((*words, option.opts[0], form.format(large)))
    number = 0
    for kind in (READERS[name] for name in sorted(READERS)):
        for content in changed((kit / kind.file).read_bytes(), kind.syntax, numbers=True):
            for large in _LARGE[:2]:
                number += 1
                yield Case(tuple(kind.commands[number % len(kind.commands)]), kind.file,
                           content.replace(b"%NAMED%", large.encode()))


def examine_alone(case: Case, kit: Path, folder: Path) -> list[str]:
    """As :func:`examine` in a process of its own; that it takes long is not wrong."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (3 * SECONDS, resource.RLIM_INFINITY))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 4 * BYTES,
                                                resource.RLIM_INFINITY))
        with os.fdopen(write, "w") as stream:
            stream.writelines(" | ".join(one.split("\n")) + "\n"
                              for one in examine(case, kit, folder) if one != _SLOW)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        found = stream.read().splitlines()
    _, status = os.waitpid(child, 0)
    if status and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        found.append(f"the process ended ({status})")
    return found
