"""Sphinx configuration: Markdown pages (MyST) and the docstrings of the public names."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from docutils.nodes import SkipNode
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

import ramsis  # noqa: E402 - from the checkout
from ramsis.cli.main import cli  # noqa: E402

project = "ramsis"
author = "The ramsis developers"
copyright = "The ramsis developers, MIT licence"
release = version = ramsis.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses are described once, in the class
napoleon_attr_annotations = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"ramsis {release}"
html_show_sphinx = False
html_search_scorer = str(_ROOT / "docs" / "search.js")
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["math.css"]

_SHARED = re.compile(r"^\w+(, \w+)+(?= : |$)")


def _prepare(_app: Any, what: str, _name: str, _of: Any, _options: Any, lines: list[str]) -> None:
    """Mend what Napoleon misreads: a colon in a property's summary, attributes on one line."""
    if what in ("attribute", "property") and lines:
        lines[0] = lines[0].replace(": ", " – ")
    elif what == "class":
        lines[:] = [_SHARED.sub(lambda m: m[0].replace(", ", ","), line) for line in lines]


def _add_options(_app: Any, page: str, text: list[str]) -> None:
    """Below each command of the page of the command line: a table of its options."""
    if page == "cli":
        text[0] = re.sub(r"(?ms)^## `(ramsis(?: [a-z-]+)+).*?(?=^## |\Z)",
                         lambda section: section[0] + _options(section[1]), text[0])


def _options(path: str) -> str:
    """The options of a command as ``--help-all`` has them, as a table in Markdown."""
    command: click.Command = cli
    for word in path.split()[1:]:
        found = isinstance(command, click.Group) and command.get_command(
            click.Context(command), word)
        assert found, f"{path}: no such command"
        command = found
    context = click.Context(command, info_name=path)
    rows = [option.get_help_record(context) for option in command.get_params(context)
            if isinstance(option, click.Option) and "--help" not in option.opts]
    table = "".join(f"| `{name}` | {words} |\n" for name, words in (
        (row[0].replace("|", r"\|"), re.sub(r"([|*$<])", r"\\\1", row[1].replace("\n", " ")))
        for row in rows if row))
    return f"\n| option | |\n|---|---|\n{table}\n" if table else ""


def _math(writer: Any, node: Any) -> None:
    """A formula of a line."""
    writer.body.append(convert(node.astext(), display="inline"))
    raise SkipNode


def _equation(writer: Any, node: Any) -> None:
    """A formula that stands alone."""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div class="math" style="overflow-x: auto">{formula}</div>')
    raise SkipNode


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    # MathML: browsers draw it themselves, without a script from the network.
    app.add_html_math_renderer("mathml", (_math, None), (_equation, None))
    app.connect("autodoc-process-docstring", _prepare, priority=400)
    app.connect("source-read", _add_options)
