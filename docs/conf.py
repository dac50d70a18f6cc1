"""Sphinx configuration: Markdown pages (MyST) and the docstrings of the public names."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import click
import numpy as np
from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from sphinx.pycode import ModuleAnalyzer

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "scripts")]

import gallery  # noqa: E402 - of scripts, as the next two
import options_page  # noqa: E402
import texts  # noqa: E402

import placement_milp  # noqa: E402 - from the checkout, as the next ones
import ramsis  # noqa: E402
from placement_milp.partitions import shipped_partitions  # noqa: E402
from ramsis.cli.help import TOPICS  # noqa: E402
from ramsis.cli.main import cli  # noqa: E402
from ramsis.policy.records import HeadroomRecord, Interval, Replay  # noqa: E402
from ramsis.profiles.tails import Tail  # noqa: E402
from ramsis.records import Record, readers_of  # noqa: E402
from ramsis.scaling.policy_file import ScalingFile  # noqa: E402
from ramsis.schemas import read_schema  # noqa: E402
from ramsis.sized.records import SizedFile  # noqa: E402

project = "ramsis"
author = "The ramsis developers"
copyright = "The ramsis developers, MIT licence"
release = version = ramsis.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary",
              "sphinx.ext.napoleon", "sphinx_copybutton"]
templates_path = ["_templates"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in (
    "ArrayLike", "BoolArray", "FloatArray", "IntArray", "TextArray")}
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses are described once, in the class
napoleon_attr_annotations = False
napoleon_use_rtype = False

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"  # a command's further lines have no prompt

html_theme = "furo"
html_title = f"ramsis {release}"
html_show_sphinx = False
html_search_scorer = str(_ROOT / "docs" / "search.js")
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["math.css", "figures.css"]

MODULES = [*(f"ramsis.{name}" for name in dir(ramsis)
             if not name.startswith("_") and name not in ramsis.__all__),
           "placement_milp", "ramsis"]
"""Packages and modules that have a page of the reference."""
_KINDS = {"Functions": ("autofunction", inspect.isfunction),
          "Classes": ("autoclass", lambda value: inspect.isclass(value)
                      and not issubclass(value, Exception)),
          "Errors": ("autoexception", lambda value: inspect.isclass(value)),
          "Constants and types": ("autodata", lambda _: True)}


def _reference() -> dict[str, dict[str, tuple[str, dict[str, str]]]]:
    """Each module's public names by kind, each with the full name that it is described under.

    That is its name in the package whose code defines it, or else in the first that offers it.
    """
    homes: dict[tuple[int, str], str] = {}
    values = {f"{module}.{name}": getattr(importlib.import_module(module), name)
              for module in MODULES for name in importlib.import_module(module).__all__}
    keys = {full: (id(value), "" if callable(value) else full.rpartition(".")[2])
            for full, value in values.items()}
    for full, value in values.items():
        code = getattr(value, "__module__", "").split(".")
        own = ".".join(code[:1 if code[0] == "placement_milp" else 2])
        if own == full.rpartition(".")[0] or keys[full] not in homes:
            homes[keys[full]] = full
    pages: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
        module: {kind: (directive, {}) for kind, (directive, _) in _KINDS.items()}
        for module in MODULES}
    for full in sorted(values):
        module, _, name = full.rpartition(".")
        kind = next(kind for kind, (_, is_of) in _KINDS.items() if is_of(values[full]))
        pages[module][kind][1][name] = homes[keys[full]]
    return pages


autosummary_context = {"reference": _reference()}

_SHARED = re.compile(r"^\w+(, \w+)+(?= : |$)")


def _prepare(
    _app: Any, what: str, name: str, value: Any, _options: Any, lines: list[str]
) -> None:
    """Mend what Napoleon misreads: a colon in a property's summary, attributes on one line."""
    if what == "data":
        lines[:] = _comment(name.rpartition(".")[2], value)
    lines[:] = lines[:next((i for i, line in enumerate(lines)
                            if line.startswith("May import: ")), None)]
    if what in ("attribute", "data", "property") and lines:
        lines[0] = lines[0].replace(": ", " – ")
    elif what == "class":
        lines[:] = [_SHARED.sub(lambda m: m[0].replace(", ", ","), line) for line in lines]
        if issubclass(value, Record) and is_dataclass(value):  # annotations describe its fields
            described = {name: field.schema.get("description")
                         for name, field in readers_of(value).items()}
            lines += ["", "Parameters", "----------", *(
                line for name, text in described.items() if text
                for line in (name, f"    {text}"))]


def _comment(name: str, value: Any) -> list[str]:
    """What stands below the assignment of a constant, in whichever module it is."""
    for module in [each for each in sys.modules if each.startswith(("ramsis.", "placement_milp"))]:
        if vars(sys.modules[module]).get(name) is value:
            comment = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
            if comment:
                return comment
    return []


class _NDArray:
    def __class_getitem__(cls, _: Any) -> type:
        return np.ndarray


def _strip_rules(_app: Any, function: Any, _is_bound: bool) -> None:
    """Leave out of a signature what files may hold (``Annotated``), and types of elements."""
    names = {name: type(name, (), {"__module__": "numpy.typing"})
             for name in autodoc_type_aliases}
    with suppress(NameError, TypeError, AttributeError):
        function = inspect.unwrap(function)
        function.__annotations__ = get_type_hints(function, localns=names | {"NDArray": _NDArray})


def _skip(
    _app: Any, _what: str, _name: str, value: Any, _skips: bool, _options: Any
) -> bool | None:
    """Leave out fields of named tuples, which their class describes."""
    return True if type(value).__name__ == "_tuplegetter" else None


def _add_aliases(_app: Any, env: BuildEnvironment) -> None:
    """Put names that another package describes into the inventory, so that links find them."""
    objects = env.domains.python_domain.objects
    for module, kinds in autosummary_context["reference"].items():
        for _, names in kinds.values():
            for name, home in names.items():
                objects.setdefault(f"{module}.{name}", objects[home]._replace(aliased=True))


_SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "problem": lambda: placement_milp.schema("placement-problem-1"),
    "placement": lambda: placement_milp.schema("placement-1"),
    "scenario": ramsis.scenario.schema,
    "scaling": ScalingFile.schema,
    "replay": Replay.schema,
    "interval": Interval.schema,
    "headroom": HeadroomRecord.schema,
    "tail": Tail.schema,
    "profile": ramsis.profiles.ProfileSet.schema,
    "sized": SizedFile.schema,
    "policy": lambda: read_schema("ramsis.policy", "policy-1"),
    "manifest": lambda: read_schema("ramsis.policy", "manifest-1")}


def _schema_fields(schema: dict[str, Any], path: str) -> str:
    """A row for each field of an object of a JSON schema: its default and its description."""
    def named(node: dict[str, Any]) -> dict[str, Any]:
        if "type" in node.get("anyOf", [{}])[-1]:  # or null
            node = node["anyOf"][0] | {key: node[key] for key in node.keys() - {"anyOf"}}
        return schema["$defs"][node["$ref"].rpartition("/")[2]] | node if "$ref" in node else node

    def entry(node: dict[str, Any]) -> dict[str, Any]:
        node = named(node)
        return named(node["items"]) if "items" in node else node

    node = schema
    for name in filter(None, path.split(".")):
        node = entry(node["properties"][name])
    def cells(name: str) -> tuple[str, str]:
        field = named(node["properties"][name])
        default = field.get("default")
        text = " ".join(field.get("description", "").split())
        allowed = [field["const"]] if "const" in field else field.get("enum", ())
        listed = ", ".join(f"`{value}`" for value in allowed if str(value) not in text)
        return ("required" if name in node["required"] else "optional" if default is None
                else f"`{default:g}`" if isinstance(default, float)
                else f"`{json.dumps(default)}`".replace('"', ""),
                f"{_marked(text)} {listed}".strip())

    return texts.markdown(("field", "default", "meaning"), (
        [", ".join(f"`{name}`" for name in names), *same]
        for same, names in groupby(node["properties"], cells)))


_TABLES = {"<!-- layers -->": lambda: _layers(),
           "<!-- settings of policies -->": options_page.settings_table,
           "<!-- limits of settings -->": options_page.limits_table,
           "<!-- all figures -->": lambda: gallery.gallery(gallery.DOCS),
           "<!-- known GPUs -->": lambda: texts.markdown(("GPU", "instances"), (
               (f"`{table.name}`", ", ".join(f"`{item.name}`" for item in table.instances))
               for table in shipped_partitions().values())),
           "<!-- coverage -->": lambda: texts.render(texts.read_rows())}


def _add_help(_app: Any, page: str, text: list[str]) -> None:
    """Put lists, fields and tables where pages name them, and each command's help below it."""
    text[0] = re.sub(r"<!-- ramsis help ([a-z-]+) -->", lambda mark: _table(
        list(TOPICS[mark[1]][1]())[1:]), text[0])
    text[0] = re.sub(r"<!-- fields of (\w+) -->", lambda mark: _table(_fields(
        getattr(ramsis.policy, mark[1]))), text[0])
    text[0] = re.sub(r"<!-- schema of ([a-z]+): ([a-z_.]*) -->", lambda mark: _schema_fields(
        _SCHEMAS[mark[1]](), mark[2]), text[0])
    for mark, table in _TABLES.items():
        if mark in text[0]:
            text[0] = text[0].replace(mark, table())
    if page == "cli":
        text[0] = re.sub(r"(?ms)^## `(ramsis(?: [a-z-]+)+).*?(?=^## |\Z)",
                         lambda section: section[0] + _help(section[1]), text[0])


def _layers() -> str:
    """The layers that import-linter checks, each package with the summary of its docstring."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))
    layers = next(contract["layers"]
                  for contract in settings["tool"]["importlinter"]["contracts"]
                  if "ramsis.cli" in contract.get("layers", ()))
    rows = [(str(number), f"`{name}`", (inspect.getdoc(importlib.import_module(name)) or "")
             .partition("\n\n")[0].replace("\n", " "))
            for number, layer in enumerate(layers, 1) for name in layer.split(" | ")]
    return texts.markdown(("row", "package", "contents"), rows)


def _help(path: str) -> str:
    """The description and examples of a command, and a table of its options, in Markdown."""
    command: click.Command = cli
    for word in path.split()[1:]:
        found = isinstance(command, click.Group) and command.get_command(
            click.Context(command), word)
        assert found, f"{path}: no such command"
        command = found
    context = click.Context(command, info_name=path)
    words, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
    rows = [option.get_help_record(context) for option in command.get_params(context)
            if isinstance(option, click.Option) and "--help" not in option.opts]
    return (f"\n{_marked(words)}\n```console\n{textwrap.dedent(examples)}\n```\n\n"
            f"{_table(filter(None, rows))}\n")


def _fields(record: type) -> list[tuple[str, str]]:
    """Names and descriptions in the section ``Attributes`` of a class."""
    section = inspect.cleandoc(record.__doc__ or "").partition("----------\n")[2]
    return [(names.replace(", ", "`, `"), re.sub(r"(?::\w+:)?`+~?([^`]+)`+", r"`\1`", words))
            for names, words in re.findall(r"(?m)^(\w.*)\n((?:    .*(?:\n|\Z))+)", section)]


def _table(rows: Iterable[tuple[str, str]]) -> str:
    """Words and their meanings as a table in Markdown."""
    lines = [(f"`{name}`", " ".join(_marked(words).split())) for name, words in rows]
    return "\n".join(["| | |", "|---|---|", *(
        "| " + " | ".join(re.sub(r"(?<!\\)\|", r"\|", cell) for cell in line) + " |"
        for line in lines)]) if lines else ""


def _marked(words: str) -> str:
    """Text of the terminal in Markdown: options as code, other marks as they are."""
    return re.sub(r"(`[^`]*`)|(--[a-z-]+)|([|*$<])", lambda part: (
        part[1] or (f"`{part[2]}`" if part[2] else f"\\{part[3]}")), words)


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
    app.connect("autodoc-before-process-signature", _strip_rules)
    app.connect("autodoc-skip-member", _skip)
    app.connect("env-updated", _add_aliases)
    app.connect("source-read", _add_help)
