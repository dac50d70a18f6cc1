"""Write the tables of ``docs/options.md`` from the declared settings of policies."""

from __future__ import annotations

import re
from pathlib import Path

from ramsis.settings import settings_of
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.settings import LIMITS, Limit

PAGE = Path(__file__).resolve().parents[1] / "docs/options.md"


def settings_table() -> str:
    """A row for each setting: its description, its values and its defaults."""
    rows = ["| setting | meaning | values | default |", "|---|---|---|---|"]
    for name, declared in settings_of(SynthesisSettings).items():
        values = declared.rule.allowed if declared.rule else ""
        cells = (f"`{name}`", declared.help.replace("\n", " "), values,
                 declared.default_words)
        rows.append("|" + "|".join(f" {text.replace('|', chr(92) + '|')} " if text else " "
                                   for text in cells) + "|")
    return "\n".join(rows)


def limits_table() -> str:
    """A row for each limit: its condition, the values that are left, and the reason."""
    rows = ["| where | setting | allowed | because |", "|---|---|---|---|"]
    rows += [f"| {condition(limit)} | `{limit.option}` | {limit.rule.allowed} | {limit.why} |"
             for limit in LIMITS]
    return "\n".join(rows)


def condition(limit: Limit) -> str:
    """The condition of a limit, in Markdown."""
    return ", ".join(f"`{name}` {word}" for name, word in limit.given.items())


def with_tables(page: str) -> str:
    """Replace the first table below each of two headings of a page."""
    for heading, table in (("Settings", settings_table()), ("Why", limits_table())):
        match = re.search(rf"(?ms)^## {heading}\n.*?(^\|.*?)(?=\n\n)", page)
        if match:
            page = page[:match.start(1)] + table + page[match.end(1):]
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
