"""What engines run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Job"]


class Job(Protocol):
    """Something to make once."""

    @property
    def path(self) -> Path:
        """The file that it makes."""
        ...

    @property
    def needs(self) -> Sequence[Job]:
        """Jobs whose files it reads."""
        ...

    def done(self) -> bool:
        """Whether it is there."""
        ...

    def run(self) -> dict[str, Any] | None:
        """Make it; or give it, where it is no file."""
        ...
