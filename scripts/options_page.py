"""Tables of declared settings and their limits, put into ``docs/options.md`` as it is built."""

from __future__ import annotations

from ramsis.settings import settings_of
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.settings import LIMITS, Limit


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
