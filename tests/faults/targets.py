"""What a name to write to can be: a link, a pipe, a device, a file with permissions of its own."""

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.faults.kills import (
    Finding,
    Writer,
    begun,
    content,
    ended,
    made_ready,
    whole_run,
    words_of,
)


class _Case(NamedTuple):
    """A file to write, what was there before a run, and what a run without it leaves."""

    writer: Writer
    kit: Path
    work: Path
    name: str
    wanted: bytes

    def run(self, prepare: Callable[[], object] = lambda: None) -> int:
        return ended(begun(words_of(self.writer.words, self.kit, self.work), prepare))

    def holds(self, found: bytes) -> bool:
        """Whether a file has its content; of those that differ in every run, any."""
        return bool(found) if self.name in self.writer.varies else found == self.wanted


def odd_targets(writer: Writer, kit: Path, root: Path) -> Iterator[Finding]:
    """Run a command with each of its files as a link, a pipe, a device, and with modes."""
    _, wanted, _ = whole_run(writer, kit, root)
    for word in writer.words:
        name = word.removeprefix("{work}/")
        if name == word or name not in wanted:
            continue  # no file of the command line
        for what in (_link, _pipe, _device, _modes):
            work = root / "work"
            made_ready(work, {})
            for found in what(_Case(writer, kit, work, name, wanted[name])):
                yield Finding(f"{name}: {found}", 0.0)
            if left := [one for one in content(work) if "/." in f"/{one}"]:
                yield Finding(f"{name}: left {left}", 0.0)


def _link(case: _Case) -> Iterator[str]:
    other, link = case.work / "elsewhere" / "other", case.work / case.name
    other.parent.mkdir()
    other.write_text("before")
    link.symlink_to(other)
    if code := case.run():
        yield f"a link: exit code {code}"
    elif not link.is_symlink() or not case.holds(other.read_bytes()):
        yield "a link: not what it names was written"


def _pipe(case: _Case) -> Iterator[str]:
    pipe = case.work / case.name
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    code = case.run()
    if reader.is_alive():  # nobody wrote
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    reader.join(10)
    if code or not stat.S_ISFIFO(pipe.stat().st_mode) or not case.holds(b"".join(heard)):
        yield f"a pipe: exit code {code}, {len(b''.join(heard))} bytes were heard"
    pipe.unlink()  # so that nothing waits for it


def _device(case: _Case) -> Iterator[str]:
    for device, wanted in (("/dev/null", 0), ("/dev/full", 2)):
        link = case.work / case.name
        link.symlink_to(device)
        code = case.run()
        if code != wanted or not link.is_symlink() or not stat.S_ISCHR(os.stat(device).st_mode):
            yield f"{device}: exit code {code}"
        link.unlink()


def _modes(case: _Case) -> Iterator[str]:
    file = case.work / case.name
    if case.run(lambda: os.umask(0o027)) or stat.S_IMODE(file.stat().st_mode) != 0o640:
        yield f"the umask: mode {file.stat().st_mode:o}"
    file.chmod(0o604)
    if case.run() or stat.S_IMODE(file.stat().st_mode) != 0o604:
        yield f"its own permissions: mode {file.stat().st_mode:o}"
