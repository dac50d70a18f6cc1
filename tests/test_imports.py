"""Packages import downward only, and each outside package where it belongs."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli as import_linter

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [path for name in ("ramsis", "placement_milp")
           for path in sorted((ROOT / name).rglob("*.py"))]


def test_the_layering_contracts_are_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    code = import_linter.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_every_package_stands_in_a_layer() -> None:
    """A package that no contract names could import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    named = {name.strip() for layer in layers for name in layer.split("|")}
    packages = {f"ramsis.{path.parent.name}" for path in (ROOT / "ramsis").glob("*/__init__.py")}
    assert packages <= named
    assert "placement_milp" in named


def imported(path: Path) -> Iterator[str]:
    """Top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(
    ("packages", "belongs"),
    [
        ({"numba"}, lambda path: path.name == "_kernels.py"),
        ({"matplotlib"}, lambda path: path.parent.name == "report"),
        ({"click", "rich"}, lambda path: path.parent.name == "cli"),
        ({"numpy", "scipy"}, lambda path: path.parent.name != "runtime"),
    ],
    ids=["numba", "matplotlib", "click", "numpy"],
)
def test_outside_packages_stay_where_they_belong(packages: set[str], belongs: object) -> None:
    assert callable(belongs)
    found = [str(path.relative_to(ROOT)) for path in SOURCES
             if packages & set(imported(path)) and not belongs(path)]
    assert found == []


def test_pandas_is_imported_inside_functions_only() -> None:
    """Frames are for the user's edge: nothing else waits for pandas to load."""
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = {alias.name for node in top for alias in node.names}
        assert "pandas" not in names, path
