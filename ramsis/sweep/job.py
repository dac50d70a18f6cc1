"""Interface of jobs, which engines run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ramsis.errors import InputFileError
from ramsis.files import read_json


class Job(Protocol):
    """A computation that writes a file, or returns a value."""

    @property
    def path(self) -> Path:
        """File that it writes."""
        ...

    @property
    def needs(self) -> Sequence[Job]:
        """Jobs whose files it reads; none by default."""
        return ()

    def done(self) -> bool:
        """Return whether its result exists; by default whether its file does."""
        return self.path.exists()

    def run(self) -> dict[str, Any] | None:
        """Write the file; or, for a job without one, return the value."""
        ...


def whole_file(path: Path, format_: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of a file of this format and inputs; None if missing or incomplete."""
    try:
        document = read_json(path)
    except InputFileError:
        return None
    good = document.get("format") == format_ and document.get("inputs") == inputs
    return document if good else None
