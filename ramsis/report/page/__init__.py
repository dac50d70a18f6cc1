"""Self-contained page about profiles, policies, simulations, sweeps and placements."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.files import write_atomic
from ramsis.report.page.document import page_text
from ramsis.report.page.parts import PLAN
from ramsis.report.page.sources import sections_of

__all__ = ["MOST_BYTES", "write_report"]

MOST_BYTES = 5_000_000  # a page is smaller, so that every browser opens it


def write_report(
    sources: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str], *,
    title: str | None = None,
) -> int:
    """Write a page on files and folders, and return its number of sections.

    ``docs/report.md`` says which. The title is by default the name of the only section.
    """
    if not sources:
        raise InvalidValueError("nothing to report on", where="sources",
                                allowed="one or more files or folders")
    sections = [section for name in sources for section in sections_of(os.fspath(name))]
    if title is None:
        alone = len(sections) == 1 or sections[0].kind == PLAN
        title = (f"{sections[0].kind}: {sections[0].title}" if alone
                 else f"Report on {len(sections)} results")
    page = page_text(title, sections).encode()
    if len(page) >= MOST_BYTES:
        raise InputFileError("too much for one page", where=os.fspath(path),
                             value=f"{len(page) / 1e6:.1f} MB of {len(sections)} sections",
                             allowed=f"less than {MOST_BYTES / 1e6:g} MB: a report on each")
    write_atomic(path, page)
    return len(sections)
