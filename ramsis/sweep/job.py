"""What engines run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ramsis.errors import InputFileError
from ramsis.files import read_json


class Job(Protocol):
    """Something to make once."""

    @property
    def path(self) -> Path:
        """The file that it makes."""
        ...

    @property
    def needs(self) -> Sequence[Job]:
        """Jobs whose files it reads; none by default."""
        return ()

    def done(self) -> bool:
        """Whether it is there; by default whether there is such a file."""
        return self.path.exists()

    def run(self) -> dict[str, Any] | None:
        """Make it; or give it, where it is no file."""
        ...


def whole_file(path: Path, format_: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a file of a format holds; ``None`` if there is no whole file of these inputs."""
    try:
        document = read_json(path)
    except InputFileError:
        return None
    good = document.get("format") == format_ and document.get("inputs") == inputs
    return document if good else None
