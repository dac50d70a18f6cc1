"""Sections as one HTML document that asks no network.

Every text is escaped, figures stand in it as JSON that is no code, and a content security policy
lets nothing run but the page's own script and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ramsis import __version__
from ramsis.report.page.parts import Figure, Note, Part, Section, Table
from ramsis.tables import escape, html_table

__all__ = ["page_text"]

_SCRIPTS = ("draw", "figure", "curves", "bars", "map", "explore", "page")
_DIGITS = 7
_NO_SCRIPT = "The script that draws the figures is switched off; the tables have the values."


def page_text(title: str, sections: Sequence[Section]) -> str:
    """The document.

    Parameters
    ----------
    title : str
    sections : sequence of Section
    """
    script = _script()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = (f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
               "base-uri 'none'; form-action 'none'")
    several = len(sections) > 1
    body = [f"<header><h1>{escape(title)}</h1>",
            f'<p class="soft">Written by ramsis {escape(__version__)}.</p></header>',
            _contents(sections) if several else "", f"<noscript><p>{_NO_SCRIPT}</p></noscript>",
            "<main>"]
    for i, section in enumerate(sections):
        body.append(_section(section, f"s{i}", several=several))
    return "\n".join([
        '<!DOCTYPE html>', '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>", f"<style>\n{_asset('page.css')}</style>", "</head>",
        "<body>", *body, "</main>", f"<script>{script}</script>", "</body>", "</html>", ""])


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _script() -> str:
    return '(() => {\n"use strict";\n' + "\n".join(
        _asset(f"{name}.js") for name in _SCRIPTS) + "})();\n"


def _contents(sections: Sequence[Section]) -> str:
    lines = "".join(f'<li><a href="#s{i}">{escape(one.kind)}: {escape(one.title)}</a></li>'
                    for i, one in enumerate(sections))
    return f'<nav aria-label="Contents"><ul>{lines}</ul></nav>'


def _section(section: Section, name: str, *, several: bool) -> str:
    """All about one input; the only section has the page's heading."""
    head = "" if several else ' class="unseen"'
    return "\n".join([
        f'<section id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title"{head}>{escape(section.kind)}: {escape(section.title)}</h2>',
        f"<h3>{escape(section.heading)}</h3>", _terms(section.asked),
        "<h3>Results</h3>", *(_part(part, f"{name}-{i}") for i, part in enumerate(section.parts)),
        "<h3>How to reproduce it</h3>",
        *(f"<pre><code>{escape(line)}</code></pre>" for line in section.commands),
        _terms(section.origin), "</section>"])


def _terms(pairs: Sequence[tuple[str, str]]) -> str:
    lines = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in pairs)
    return f'<dl class="asked">{lines}</dl>'


def _part(part: Part, name: str) -> str:
    match part:
        case Table():
            label = escape(part.caption, quote=True)
            table = html_table(part.columns, part.rows, caption=part.caption, most=part.most)
            return (f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
                    f"{table}</div>")
        case Note():
            return f"<p>{escape(part.text)}</p>"
        case Figure():
            return (f'<figure data-chart="{name}-data" aria-labelledby="{name}-name">'
                    f'<figcaption id="{name}-name">{escape(part.title)}</figcaption></figure>\n'
                    f'<script type="application/json" id="{name}-data">{_json(part.spec)}'
                    "</script>")


def _json(value: Any) -> str:
    """JSON that can stand in a page: nothing in it ends the element."""
    text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Any) -> Any:
    """Numbers to seven digits; those that are none as null."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
