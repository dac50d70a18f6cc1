"""Packages import downward only, and each outside package where it belongs."""

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from importlinter import cli as import_linter
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from ramsis.memory import without_collection

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path for name in ("ramsis", "placement_milp")
           for path in sorted((ROOT / name).rglob("*.py"))]


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax trees of all files: millions of objects, which no collection is to look at."""
    with without_collection():
        parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}
        gc.freeze()
    return parsed


def tree(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return trees()[path]


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """The statements of a file that import something, wherever in it."""
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_the_layering_contracts_are_kept(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    code = import_linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_every_package_stands_in_a_layer():
    """A package that no contract names could import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    named = {name.strip() for layer in layers for name in layer.split("|")}
    packages = {f"ramsis.{path.parent.name}" for path in (ROOT / "ramsis").glob("*/__init__.py")}
    assert packages <= named
    assert "placement_milp" in named


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports, wherever in it."""
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(("packages", "belongs"), [
    ({"matplotlib"}, lambda path: path.parent.name == "report"),
    ({"click", "rich"}, lambda path: "cli" in path.parts),
    ({"numpy", "scipy"}, lambda path: path.parent.name != "runtime"),
], ids=["matplotlib", "click", "numpy"])
def test_outside_packages_stay_where_they_belong(packages, belongs):
    assert callable(belongs)
    found = [str(path.relative_to(ROOT)) for path in SOURCES
             if packages & set(imported(path)) and not belongs(path)]
    assert found == []


def test_pandas_is_imported_inside_functions_only():
    """Frames are for the user's edge: nothing else waits for pandas to load."""
    for path in SOURCES:
        top = [node for node in tree(path).body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in top for alias in node.names}
        assert "pandas" not in names, path


@pytest.mark.parametrize("module", [
    "ramsis.policy", "ramsis.serving.workers.worker"])
def test_policies_are_read_and_served_without_what_makes_them(module):
    """The import of scipy alone would take as long as ``ramsis validate``."""
    code = (f"import sys, {module}\n"
            "print({'scipy', 'numba', 'pandas', 'matplotlib'} & set(sys.modules))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


EXTRAS = ("aiohttp", "fsspec", "gymnasium", "httptools", "matplotlib", "mlserver", "onnxruntime",
          "orjson", "prometheus_client", "ray", "skl2onnx", "sklearn", "starlette", "torch",
          "transformers", "uvicorn", "uvloop", "zstandard")


def test_every_command_starts_without_any_extra():
    """What needs an extra says so when it is used; help and other commands do without."""
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import click
from ramsis.cli.main import cli
def names(group, context, path):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from names(command, context, (*path, name))
        else:
            yield " ".join((*path, name))
found = list(names(cli, click.Context(cli), ()))
print(len(found), "export triton" in found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, export = done.stdout.split()
    assert int(count) > 30
    assert export == "True"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path, known: set[str]) -> Iterator[str]:
    """Modules of ours that a file imports: in functions and for type checking, too.

    A name from a package is the module of that name, or else the package itself.
    """
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif node.module in known:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else str(node.module) for name in names)


def circles() -> list[set[str]]:
    """Groups of modules that import each other, directly or through others."""
    names = [module_name(path) for path in SOURCES]
    index = {name: i for i, name in enumerate(names)}
    arrows = {(index[name], index[other])
              for name, path in zip(names, SOURCES, strict=True)
              for other in imported_modules(path, set(names))}
    rows, columns = np.array(sorted(arrows)).T
    graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(names), len(names)))
    count, group = connected_components(graph, directed=True, connection="strong")
    members = [{names[i] for i in np.flatnonzero(group == g)} for g in range(count)]
    return [found for found in members if len(found) > 1]


def test_no_modules_import_each_other():
    """Arrows go one way; an import inside a function is an arrow, too."""
    assert circles() == []


ROOMS = {path.parent.name: path for path in (
    *sorted((ROOT / "ramsis").glob("*/__init__.py")), ROOT / "placement_milp/__init__.py")}
_MAY = re.compile(r"May import: ([\w\s,]+)\.\s*\Z")


def rooms_of(path: Path) -> Iterator[str]:
    """Packages of this project that a file imports from, wherever in it."""
    for node in imports(path):
        names = ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                 else [node.module or ""])
        for name in names:
            first, _, rest = name.partition(".")
            yield first if first == "placement_milp" else (
                rest.partition(".")[0] if first == "ramsis" else "")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_docstring_says_and_nothing_else(room):
    docstring = ast.get_docstring(tree(ROOMS[room])) or ""
    said = _MAY.search(docstring)
    assert said, "the docstring has to end with a line such as 'May import: policy, runtime.'"
    found = {name for path in ROOMS[room].parent.rglob("*.py") for name in rooms_of(path)}
    words = set() if said[1] == "no other room" else set(re.split(r",\s+", said[1]))
    assert words == found & ROOMS.keys() - {room}


def says_standard_library_only(path: Path) -> bool:
    """Whether a module, or the room that it is in, says that it needs no more."""
    docstrings = [ast.get_docstring(tree(one)) or ""
                  for one in (path, path.parent / "__init__.py")]
    return any(re.search(r"[Ss]tandard library( only|\))", " ".join(text.split()))
               for text in docstrings)


def test_what_needs_the_standard_library_only_imports_no_more():
    modules = [path for path in SOURCES if says_standard_library_only(path)]
    assert len(modules) > 15
    outside = {f"{path.relative_to(ROOT)}: {name}" for path in modules for name in imported(path)
               if name not in sys.stdlib_module_names | {"ramsis"}}
    assert not outside
