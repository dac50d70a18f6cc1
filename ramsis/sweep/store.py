"""The place of results: a folder, or a URL that fsspec opens (``s3://bucket/name``).

Jobs read and write files below a folder. Where the place is a URL, each process has a folder of
its own for a while: what a job needs is fetched into it before, and what it made is put at the URL
after, whole or not at all, so that a finished result is never lost with a process or a node.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ramsis.errors import InvalidValueError, OutputError
from ramsis.files import check_within
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.sweep.job import Job
from ramsis.urls import ABSENT, file_system, is_url, why

Place = str | os.PathLike[str]
"""A folder, or a URL."""
_J = TypeVar("_J", bound=Job)
_AT_ONCE = 500


class Store(Protocol):
    """Where results are kept."""

    @property
    def folder(self) -> Path:
        """In which this process has them, or finds what it fetched."""
        ...

    def has(self, path: Path) -> bool:
        """Whether there is a result of this file below the folder."""
        ...

    def fetch(self, paths: Iterable[Path]) -> None:
        """Have the files, those that there are, in the folder."""
        ...

    def forget(self, paths: Iterable[Path]) -> None:
        """Let go of files that were fetched and are no good."""
        ...

    def keep(self, paths: Iterable[Path]) -> None:
        """Put files of the folder into the store."""
        ...

    def job(self, job: _J) -> _J | Job:
        """A job that reads from the store and writes to it, in whatever process it runs."""
        ...

    def name(self, path: Path) -> Path | str:
        """How a file is called in the store."""
        ...


@dataclass(frozen=True)
class FolderStore:
    """A folder; on several machines, one that all of them see."""

    folder: Path

    def has(self, path: Path) -> bool:
        """Whether the file exists, as far as can be seen."""
        return os.path.exists(path)

    def fetch(self, paths: Iterable[Path]) -> None:
        """Nothing: they are there."""

    def forget(self, paths: Iterable[Path]) -> None:
        """Nothing: the next file takes their place."""

    def keep(self, paths: Iterable[Path]) -> None:
        """Nothing: they are there."""

    def job(self, job: _J) -> _J | Job:
        """The job."""
        return job

    def name(self, path: Path) -> Path | str:
        """Its path."""
        return path


@dataclass(frozen=True)
class UrlStore:
    """A URL, of which the folder has what was fetched."""

    url: str
    folder: Path

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        return file_system(self.url, "out")

    @cached_property
    def _known(self) -> set[str]:
        """Names of all files, as they were when this was first asked."""
        system, root = self._opened
        with self._failing("read"):
            system.invalidate_cache()
            return set(self._below(root))

    def has(self, path: Path) -> bool:
        """Whether the file was there at the beginning, or has been fetched since."""
        return self._relative(path) in self._known or path.exists()

    def fetch(self, paths: Iterable[Path]) -> None:
        """Read the files that there are; of a policy set all, its manifest last."""
        system, root = self._opened
        missing = [path for path in paths if not path.exists()]
        with self._failing("read"):
            for i in range(0, len(missing), _AT_ONCE):
                wanted = {f"{root}/{self._relative(path)}": path for one in missing[i:i + _AT_ONCE]
                          for path in self._with_parts(one)}
                contents = system.cat(list(wanted), on_error="return")
                for remote, path in wanted.items():
                    content = contents.get(remote)
                    if isinstance(content, bytes):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content)
                    elif isinstance(content, Exception) and not isinstance(content, ABSENT):
                        raise content

    def _with_parts(self, path: Path) -> list[Path]:
        """The file, after those that it lists where it is a manifest."""
        if path.name != MANIFEST_NAME:
            return [path]
        _, root = self._opened
        found = self._below(f"{root}/{self._relative(path.parent)}")
        parts = [self.folder / name for name in found]
        return [*(part for part in parts if part != path), path]

    def _below(self, top: str) -> list[str]:
        """Names of the files below a path, from the store's root on; none where there is none."""
        system, root = self._opened
        try:
            system.ls(top, detail=False)  # what cannot be read, find passes over
        except ABSENT:
            return []
        return [str(one)[len(root):].lstrip("/") for one in system.find(top)]

    def forget(self, paths: Iterable[Path]) -> None:
        """Remove the files from the folder."""
        for path in paths:
            path.unlink(missing_ok=True)

    def keep(self, paths: Iterable[Path]) -> None:
        """Write the files, each whole; of a policy set all, its manifest last."""
        system, root = self._opened
        with self._failing("written"):
            for path in paths:
                parts = [path]
                if path.name == MANIFEST_NAME:
                    parts = [*(one for one in sorted(path.parent.rglob("*"))
                               if one.is_file() and one != path), path]
                for part in parts:
                    remote = f"{root}/{self._relative(part)}"
                    system.makedirs(remote.rpartition("/")[0], exist_ok=True)
                    with system.transaction:
                        system.pipe_file(remote, part.read_bytes())

    def job(self, job: _J) -> _J | Job:
        """The job in a folder of the process that runs it."""
        return _StoredJob(self.url, job)

    def name(self, path: Path) -> Path | str:
        """Its URL."""
        return f"{self.url.rstrip('/')}/{self._relative(path)}"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Whatever a file system raises, as one line."""
        try:
            yield
        except OutputError:
            raise
        except Exception as error:  # each kind of store has errors of its own
            raise OutputError(
                f"the store cannot be {what} ({why(error)})", where=self.url,
                allowed="finished results stay; run again once it is there") from None


@dataclass(frozen=True)
class _StoredJob:
    """A job whose files are at a URL."""

    url: str
    job: Any

    @property
    def path(self) -> Path:
        """Below the folder of the process that planned it."""
        path: Path = self.job.path
        return path

    @property
    def needs(self) -> tuple[Job, ...]:
        """Are fetched when it runs."""
        return ()

    def done(self) -> bool:
        """Never known without asking the store: what is there is made again."""
        return False

    def run(self) -> None:
        """Fetch what it needs, run it, and put what it made into the store."""
        store = _of_this_process(self.url)
        here = replace(self.job, folder=store.folder)
        store.fetch([here.path, *(need.path for need in here.needs)])
        if not here.done():
            here.run()
            store.keep([here.path])


@contextmanager
def store_at(place: Place) -> Iterator[Store]:
    """The store at a place; of a URL the folder is removed at the end."""
    if not is_url(place):
        folder = Path(place)
        if os.path.exists(folder) and not folder.is_dir():
            raise InvalidValueError("not a folder", where="out", value=str(place))
        for parent, folders, names in os.walk(folder):
            for name in (*folders, *names):
                path = os.path.join(parent, name)
                if os.path.islink(path):
                    check_within(folder, os.path.relpath(path, folder))
        yield FolderStore(folder)
        return
    url = os.fspath(place)
    file_system(url, "out")
    with tempfile.TemporaryDirectory(prefix="ramsis-") as own:
        yield UrlStore(url, Path(own))


@cache
def _of_this_process(url: str) -> UrlStore:
    """The store with a folder that goes with this process."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="ramsis-"))
    return UrlStore(url, Path(_FOLDERS[-1].name))


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
