"""Sections as an HTML document that needs no network.

Every text is escaped, figures are JSON and no code, and a content security policy allows nothing
but the page's script to run, and nothing to be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from ramsis import __version__
from ramsis.report.figure import look_numbers
from ramsis.report.page.parts import PLAN, Figure, Note, PageTable, Part, Section
from ramsis.tables import Column, escape, html_table

_SCRIPTS = ("draw", "figure", "curves", "bars", "map", "explore", "page")
_DIGITS = 7  # of numbers in figures, finer than any screen
_MOST_VERDICTS = 12  # at the head of the page
_MOST_BESIDE = 6  # results in a table; nobody compares more side by side
_MOST_COMMANDS = 5  # that stand open; a plan for several loads has dozens
_DARKEST, _LIGHTEST = 0.06, 0.96  # of the colour scale: visible on dark and on white paper
_NO_SCRIPT = "The script that draws the figures is switched off; the tables have the values."


class Styles(NamedTuple):
    """Colours of models and looks of lines, by name, the same on the whole page."""

    shades: Mapping[str, float]  # places of models on the colour scale
    looks: Mapping[str, float]  # numbers of looks


def page_text(title: str, sections: Sequence[Section]) -> str:
    """Return the HTML of a report page with a title and sections."""
    script = '(() => {\n"use strict";\n' + "\n".join(
        _asset(f"{name}.js") for name in _SCRIPTS) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
               "base-uri 'none'; form-action 'none'")
    several = len(sections) > 1
    styles = Styles(_shades(sections), _looks(sections))
    body = [f"<header><h1>{escape(title)}</h1>", _verdicts(sections),
            f'<p class="soft">{_today()}, ramsis {escape(__version__)}.</p></header>',
            _contents(sections) if several else "", f"<noscript><p>{_NO_SCRIPT}</p></noscript>",
            "<main>", *(_part(part, f"b{i}", styles)
                        for i, part in enumerate(side_by_side(sections)))]
    for i, section in enumerate(sections):
        body.append(_section(section, f"s{i}", styles, several=several))
    return "\n".join([
        '<!DOCTYPE html>', '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>", f"<style>\n{_asset('page.css')}</style>", "</head>",
        "<body>", *body, "</main>", f"<script>{script}</script>", "</body>", "</html>", ""])


def _today() -> str:
    """Return the date, or the date in SOURCE_DATE_EPOCH for reproducible builds."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = float(epoch) if epoch.isdigit() else time.time()
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _verdicts(sections: Sequence[Section]) -> str:
    """Return the verdict of a plan, or of each section, for the head of the page."""
    planned = [section for section in sections if section.kind == PLAN]
    shown = [(section, i) for i, section in enumerate(sections) if section.verdict and (
        section in planned or not planned)][:_MOST_VERDICTS]
    if not shown:
        return ""
    lines = []
    for section, i in shown:
        name = f'<a href="#s{i}">{escape(section.title)}</a>: ' if len(shown) > 1 else ""
        first, *others = (escape(line) for line in section.verdict)
        lines.append(f"<p>{name}{first}</p>" + "".join(f"<p>{line}</p>" for line in others))
    return f'<div class="verdict">{"".join(lines)}</div>'


def side_by_side(sections: Sequence[Section]) -> list[Part]:
    """Return a table for each kind that has several sections with figures in common.

    The table has a column for each section, and a row for each figure that two of them have. For
    two sections the last column is the difference.
    """
    parts: list[Part] = []
    for kind in dict.fromkeys(section.kind for section in sections):
        compared = [section for section in sections
                    if section.kind == kind and section.measures][:_MOST_BESIDE]
        names = dict.fromkeys(name for section in compared for name in section.measures)
        shared = [name for name in names
                  if sum(name in section.measures for section in compared) > 1]
        if len(compared) < 2 or not shared:
            continue
        heads = [Column("what", "figure"), *(
            Column(str(i), _title_beside(section, compared), "s")
            for i, section in enumerate(compared))]
        if len(compared) == 2:
            heads.append(Column("more", "second less first", "s"))
        parts.append(PageTable(f"{kind}: side by side", heads,
                               [_measures_row(name, compared) for name in shared]))
    return parts


def _title_beside(section: Section, beside: Sequence[Section]) -> str:
    alike = sum(other.title == section.title for other in beside) > 1
    return f"{section.title} ({beside.index(section) + 1})" if alike else section.title


def _measures_row(name: str, sections: Sequence[Section]) -> dict[str, str]:
    """Return a row of one figure of all sections, formatted; of two also the difference."""
    row = {"what": name}
    numbers: list[float] = []
    form = ""
    for i, section in enumerate(sections):
        value, form = section.measures.get(name, (None, form))
        row[str(i)] = "–" if value is None else format(value, form)
        numbers += [] if value is None else [value]
    if len(sections) == 2:
        row["more"] = format(numbers[1] - numbers[0], "+z" + form) if len(numbers) == 2 else "–"
    return row


def _shades(sections: Sequence[Section]) -> dict[str, float]:
    """Return the place of each model of the page on the colour scale, by rising accuracy.

    Pages about one profile know the same models, so a model has one colour on all of them.
    """
    accuracy: dict[str, float] = {}
    for section in sections:
        for name, value in section.models.items():
            accuracy[name] = accuracy.get(name, 0.0) if value is None else value
    ranked = sorted(accuracy, key=lambda name: (accuracy[name], name))
    return {name: _DARKEST + (_LIGHTEST - _DARKEST) * i / max(1, len(ranked) - 1)
            for i, name in enumerate(ranked)}


def _looks(sections: Sequence[Section]) -> dict[str, int]:
    """Return the look of each line of the page by its name, but for models and bounds."""
    return look_numbers(
        series["name"] for section in sections for part in section.parts
        if isinstance(part, Figure) and part.spec["kind"] == "curves"
        and not part.spec["of_models"]
        for frame in part.spec["frames"] for series in frame["series"] if not series["ref"])


def _styled(spec: Mapping[str, Any], styles: Styles) -> Mapping[str, Any]:
    """Return a figure with the looks of lines, or the colours of models, of this page."""
    of_models = spec.get("of_models")
    if spec["kind"] == "curves":
        key, values = ("shade", styles.shades) if of_models else ("look", styles.looks)
        return {**spec, "frames": [{**frame, "series": [
            {**series, key: values[series["name"]]} if series["name"] in values else series
            for series in frame["series"]]} for frame in spec["frames"]]}
    if not of_models:
        return spec
    names = spec["models"] if spec["kind"] == "map" else spec["series"]
    return {**spec, "shade": [styles.shades.get(name, _DARKEST) for name in names]}


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _contents(sections: Sequence[Section]) -> str:
    lines = "".join(f'<li><a href="#s{i}">{escape(section.kind)}: {escape(section.title)}</a></li>'
                    for i, section in enumerate(sections))
    return f'<nav aria-label="Contents"><ul>{lines}</ul></nav>'


def _section(
    section: Section, name: str, styles: Styles, *, several: bool
) -> str:
    """Return the HTML of a section; the only section has the page's heading."""
    head = "" if several else ' class="unseen"'
    return "\n".join([
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title"{head}>{escape(section.kind)}: {escape(section.title)}</h2>',
        *(f"<p><strong>{escape(line)}</strong></p>" for line in section.verdict
          if several and section.kind != PLAN),
        f"<h3>{escape(section.heading)}</h3>", _terms(section.asked),
        "<h3>Results</h3>", *(_part(part, f"{name}-{i}", styles)
                              for i, part in enumerate(section.parts)),
        "<h3>How to reproduce it</h3>", *_commands(section.commands),
        "<details><summary>Files, versions and fingerprints</summary>", _terms(section.origin),
        "</details></section>"])


def _commands(commands: Sequence[str]) -> list[str]:
    """Return the HTML of commands, behind a summary where they would fill a screen."""
    lines = [f"<pre><code>{escape(line)}</code></pre>" for line in commands]
    if len(lines) <= _MOST_COMMANDS:
        return lines
    return [f"<details><summary>{len(lines)} commands, in this order</summary>", *lines,
            "</details>"]


def _terms(pairs: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs)
    return f'<dl class="asked">{lines}</dl>'


def _part(part: Part, name: str, styles: Styles) -> str:
    match part:
        case PageTable():
            label = escape(part.caption, quote=True)
            table = html_table(part.columns, part.rows, caption=part.caption, most=part.most)
            return (f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
                    f"{table}</div>")
        case Note():
            return f"<p>{escape(part.text)}</p>"
        case Figure():
            return (f'<figure data-chart="{name}-data" aria-labelledby="{name}-name">'
                    f'<figcaption id="{name}-name">{escape(part.title)}</figcaption></figure>\n'
                    f'<script type="application/json" id="{name}-data">'
                    f'{_json(_styled(part.spec, styles))}'
                    "</script>")


def _json(value: Any) -> str:
    """Return JSON that can stand in a page: nothing in it ends the element."""
    text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Round numbers to seven digits; NaN and infinities become null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
