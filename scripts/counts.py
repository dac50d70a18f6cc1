"""How large the code is, and how far it is from its own rules of form.

    scripts/counts.py [ROOT]

ROOT is a checkout; by default the one that the script is in. Printed are lines of each part,
folders with more modules than can be looked over, public classes whose name another class has, and
how many lines say why rather than what.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from pathlib import Path

_PARTS = ("ramsis", "placement_milp", "tests", "scripts")
_MOST_MODULES = 20
_LONG = 20  # lines of a body that owes a comment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).parents[1])
    root = parser.parse_args().root
    if not (root / _PARTS[0]).is_dir():
        parser.error(f"no checkout: {root}")
    for part in _PARTS:
        lines = sum(len(_text(path).splitlines()) for path in (root / part).rglob("*.py"))
        print(f"{lines:7,} lines in {part}/")
    modules = [path for part in _PARTS[:2] for path in sorted((root / part).rglob("*.py"))]
    folders = Counter(path.parent for path in modules if path.name != "__init__.py")
    for folder, count in folders.most_common():
        if count > _MOST_MODULES:
            print(f"{count:7} modules side by side in {folder.relative_to(root)}/")
    print(f"{max(folders.values()):7} modules at most in a folder (to be {_MOST_MODULES})")
    _print_classes(root, modules)
    _print_comments(modules)


def _print_classes(root: Path, modules: list[Path]) -> None:
    places = defaultdict(list)
    for path in modules:
        for node in ast.walk(ast.parse(_text(path))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(root)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    public = sorted(name for name in twice if not name.startswith("_"))
    print(f"{len(public):7} names that several public classes have: {', '.join(public)}")
    print(f"{len(twice) - len(public):7} names that several private classes have")


def _print_comments(modules: list[Path]) -> None:
    comments = long = silent = 0
    for path in modules:
        lines = _text(path).splitlines()
        comments += sum(line.lstrip().startswith("#") for line in lines)
        for node in ast.walk(ast.parse(_text(path))):
            if isinstance(node, ast.FunctionDef):
                body = lines[node.body[0].lineno - 1 : node.end_lineno]
                if len(body) > _LONG:
                    long += 1
                    silent += not any("# " in line for line in body)
    print(f"{comments:7,} comment lines; {silent} of {long} bodies over {_LONG} lines have none")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
