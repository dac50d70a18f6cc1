"""The place of results: a folder, or a URL that fsspec opens (``s3://bucket/name``).

Jobs read and write files below a folder. If the place is a URL, each process has a temporary
folder: files that a job needs are fetched into it, and its result is then uploaded atomically, so
that no finished result is lost with a process or a node. fsspec comes with the extra ``store``; a
protocol may need a further package, such as ``s3fs``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from ramsis.errors import InvalidValueError, OutputError, install
from ramsis.files import check_within
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.sweep.pool import Job

Place = str | os.PathLike[str]  # a folder, or a URL
_J = TypeVar("_J", bound=Job)
_AT_ONCE = 500  # files per request to the store, whose contents are in memory together
# what file systems raise for a file that is not there
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True)
class Store:
    """Result files of a sweep in a local folder, or in one that all machines share."""

    folder: Path  # of the results, or of this process's fetched copies

    def has(self, path: Path) -> bool:
        """Return whether there is a result at this path; False if the folder cannot be read."""
        return os.path.exists(path)

    def fetch(self, paths: Iterable[Path]) -> None:
        """Fetch existing files into the folder; here they are in place."""

    def forget(self, paths: Iterable[Path]) -> None:
        """Remove fetched files that are invalid; here they are replaced when written again."""

    def keep(self, paths: Iterable[Path]) -> None:
        """Put files of the folder into the store; here they are in place."""

    def job(self, job: _J) -> _J | Job:
        """Return a job that reads from and writes to the store in any process."""
        return job

    def name(self, path: Path) -> Path | str:
        """Return the name of a file in the store."""
        return path


@dataclass(frozen=True)
class UrlStore(Store):
    """Store of a sweep's results at a URL, with a local folder of fetched files."""

    url: str

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        return _file_system(self.url)

    @cached_property
    def _known(self) -> set[str]:
        """Names of the files that were in the store when it was first used."""
        system, root = self._opened
        with self._failing("read"):
            system.invalidate_cache()
            return set(self._below(root))

    def has(self, path: Path) -> bool:
        """Return whether the file existed at the beginning, or has been fetched since."""
        return self._relative(path) in self._known or path.exists()

    def fetch(self, paths: Iterable[Path]) -> None:
        """Read existing files; for a manifest all of its policy set, the manifest last."""
        system, root = self._opened
        missing = [path for path in paths if not path.exists()]
        with self._failing("read"):
            for i in range(0, len(missing), _AT_ONCE):
                paths_of = {f"{root}/{self._relative(path)}": path
                            for listed in missing[i:i + _AT_ONCE]
                            for path in self._with_parts(listed)}
                contents = system.cat(list(paths_of), on_error="return")
                for remote, path in paths_of.items():
                    content = contents.get(remote)
                    if isinstance(content, bytes):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content)
                    elif isinstance(content, Exception) and not isinstance(content, _ABSENT):
                        raise content

    def _with_parts(self, path: Path) -> list[Path]:
        """Return a file; before a manifest, all other files of its folder in the store."""
        if path.name != MANIFEST_NAME:
            return [path]
        _, root = self._opened
        names = self._below(f"{root}/{self._relative(path.parent)}")
        parts = [self.folder / name for name in names]
        return [*(part for part in parts if part != path), path]

    def _below(self, top: str) -> list[str]:
        """Return names of the files below a path, from the store's root; none if it is missing."""
        system, root = self._opened
        try:
            system.ls(top, detail=False)  # raises errors that find ignores
        except _ABSENT:
            return []
        return [str(name)[len(root):].lstrip("/") for name in system.find(top)]

    def forget(self, paths: Iterable[Path]) -> None:
        """Remove the fetched copies of files from the local folder."""
        for path in paths:
            path.unlink(missing_ok=True)

    def keep(self, paths: Iterable[Path]) -> None:
        """Write the files, each whole; for a manifest all of its policy set, the manifest last."""
        system, root = self._opened
        with self._failing("written"):
            for path in paths:
                parts = [path]
                if path.name == MANIFEST_NAME:
                    parts = [*(part for part in sorted(path.parent.rglob("*"))
                               if part.is_file() and part != path), path]
                for part in parts:
                    remote = f"{root}/{self._relative(part)}"
                    system.makedirs(remote.rpartition("/")[0], exist_ok=True)
                    with system.transaction:
                        system.pipe_file(remote, part.read_bytes())

    def job(self, job: _J) -> _J | Job:
        """Return the job in a folder of the process that runs it."""
        return _StoredJob(self.url, job)

    def name(self, path: Path) -> Path | str:
        """Return the URL under which a file is stored."""
        return f"{self.url.rstrip('/')}/{self._relative(path)}"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        """Convert any error of a file system to a one-line :class:`OutputError`."""
        try:
            yield
        except OutputError:
            raise
        except Exception as error:  # each kind of store raises other errors
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise OutputError(
                f"the store cannot be {what} ({why})", where=self.url,
                allowed="finished results stay; run again once it is there") from None


@dataclass(frozen=True)
class _StoredJob:
    """Job whose input and output files are at a URL."""

    url: str
    job: Any

    @property
    def path(self) -> Path:
        """File below the folder of the process that planned the job."""
        path: Path = self.job.path
        return path

    @property
    def needs(self) -> tuple[Job, ...]:
        """No jobs: needed files are fetched when it runs."""
        return ()

    def done(self) -> bool:
        """Return False: only the store knows, which is asked when the job runs."""
        return False

    def run(self) -> None:
        """Fetch the files that the job needs, run it, and put its file into the store."""
        store = _of_this_process(self.url)
        here = replace(self.job, folder=store.folder)
        store.fetch([here.path, *(need.path for need in here.needs)])
        if not here.done():
            here.run()
            store.keep([here.path])


@contextmanager
def store_at(place: Place) -> Iterator[Store]:
    """Return the store at a place; the folder of a URL is removed at the end."""
    url = os.fspath(place)
    if "://" not in url:
        folder = Path(place)
        if os.path.exists(folder) and not folder.is_dir():
            raise InvalidValueError("not a folder", where="out", value=str(place))
        for parent, folders, names in os.walk(folder):
            for name in (*folders, *names):
                path = os.path.join(parent, name)
                if os.path.islink(path):
                    check_within(folder, os.path.relpath(path, folder))
        yield Store(folder)
        return
    _file_system(url)
    with tempfile.TemporaryDirectory(prefix="ramsis-") as temporary:
        yield UrlStore(Path(temporary), url)


def _file_system(url: str) -> tuple[Any, str]:
    """Open the file system of a URL; return it and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise InvalidValueError("URLs need fsspec", where="out", value=url,
                                allowed=install("store")) from error
    try:
        system, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise InvalidValueError(f"cannot open the store ({' '.join(str(error).split())})",
                                where="out", value=url,
                                allowed="a folder, or a URL that fsspec opens") from None
    return system, str(root).rstrip("/")


@cache
def _of_this_process(url: str) -> UrlStore:
    """Return the store with a folder that is removed with this process."""
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="ramsis-"))
    return UrlStore(Path(_FOLDERS[-1].name), url)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
