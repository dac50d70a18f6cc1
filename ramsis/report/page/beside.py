"""Two or more results of one kind side by side: the table that a page begins with."""

from __future__ import annotations

from collections.abc import Sequence

from ramsis.report.page.parts import PageTable, Part, Section
from ramsis.tables import Column

_MOST = 6  # results in a table; more are not read across


def side_by_side(sections: Sequence[Section]) -> list[Part]:
    """A table for each kind of which there are several sections that share figures.

    A column for each section, a row for each figure that two of them have. Of two sections the
    last column is what the second has more.
    """
    parts: list[Part] = []
    for kind in dict.fromkeys(one.kind for one in sections):
        own = [one for one in sections if one.kind == kind and one.measures][:_MOST]
        names = dict.fromkeys(name for one in own for name in one.measures)
        shared = [name for name in names if sum(name in one.measures for one in own) > 1]
        if len(own) < 2 or not shared:
            continue
        heads = [Column("what", "figure"), *(
            Column(str(i), _title(one, own), "s") for i, one in enumerate(own))]
        if len(own) == 2:
            heads.append(Column("more", "second less first", "s"))
        parts.append(PageTable(f"{kind}: side by side", heads,
                               [_row(name, own) for name in shared]))
    return parts


def _title(one: Section, beside: Sequence[Section]) -> str:
    alike = sum(other.title == one.title for other in beside) > 1
    return f"{one.title} ({beside.index(one) + 1})" if alike else one.title


def _row(name: str, own: Sequence[Section]) -> dict[str, str]:
    """The figures of a name, each in its format, and of two their difference."""
    row = {"what": name}
    known: list[float] = []
    form = ""
    for i, one in enumerate(own):
        value, form = one.measures.get(name, (None, form))
        row[str(i)] = "–" if value is None else format(value, form)
        known += [] if value is None else [value]
    if len(own) == 2:
        row["more"] = format(known[1] - known[0], "+z" + form) if len(known) == 2 else "–"
    return row
