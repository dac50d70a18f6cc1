"""Notebooks run from top to bottom, and show what they are kept with.

The runner is small: the cells of a notebook in one namespace, in order; of the last expression
of a cell the representations that a notebook asks for. Run as a program, this file writes them
into the notebooks.
"""

import ast
import base64
import contextlib
import io
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InvalidValueError

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_PNG = b"\x89PNG"
_OPEN = {"br", "hr", "img"}


class Balanced(HTMLParser):
    """Reads HTML and notes the elements; refuses what is not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in _OPEN:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def balanced(text: str) -> set[str]:
    """The elements of a piece of HTML that is closed in order."""
    reader = Balanced()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader.seen


def shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of its last expression, if it ends with one."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def outputs(document: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each cell of a notebook shows, as a notebook keeps it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    kept = []
    for count, cell in enumerate(_code(document), 1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            value = shown("".join(cell["source"]), names)
        results: list[dict[str, Any]] = []
        if printed.getvalue():
            results.append({"output_type": "stream", "name": "stdout",
                            "text": printed.getvalue().splitlines(keepends=True)})
        if value is not None:
            data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
            if hasattr(value, "_repr_png_"):
                data["image/png"] = base64.b64encode(value._repr_png_()).decode()
            elif hasattr(value, "_repr_html_"):
                data["text/html"] = value._repr_html_().splitlines(keepends=True)
            results.append({"output_type": "execute_result", "execution_count": count,
                            "metadata": {}, "data": data})
        kept.append(results)
    return kept


def _code(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_is_kept_with(path):
    pytest.importorskip("matplotlib")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    kinds = []
    for cell, made in zip(_code(document), outputs(document), strict=True):
        for kept, output in zip(cell["outputs"], made, strict=True):
            assert kept.get("text") == output.get("text")
            assert kept.get("data", {}).keys() == output.get("data", {}).keys()
            for kind, text in output.get("data", {}).items():
                kinds.append(kind)
                if kind == "image/png":  # versions of matplotlib draw differently
                    assert base64.b64decode(text).startswith(_PNG)
                    assert base64.b64decode(kept["data"][kind]).startswith(_PNG)
                else:
                    assert kept["data"][kind] == text
                if kind == "text/html":
                    assert "table" in balanced("".join(text))
    assert min(map(kinds.count, ("image/png", "text/html"))) >= 5


def test_there_is_a_notebook():
    assert [path.stem for path in NOTEBOOKS] == ["tutorial"]


def test_the_rows_of_a_policy_are_its_table(tiny):
    from ramsis.synthesis import SynthesisSettings, generate_policy

    policy = generate_policy(tiny, 60.0, SynthesisSettings(
        slo_ms=100.0, workers=2, grid="fixed:10", max_queue=8))
    model, batch = policy.model_and_batch()
    slack = policy.slack_ms.tolist()
    seen = 0
    for row in policy.table_rows():
        n, start = row["queued"] - 1, slack.index(row["slack_from_ms"])
        end = len(slack) if row["slack_below_ms"] is None else slack.index(row["slack_below_ms"])
        assert (batch[0, n, start:end] == (row["batch"] or 0)).all()
        if row["answer"] == "run":
            names = [policy.models[m].name for m in model[0, n, start:end]]
            assert set(names) == {row["model"]}
        seen += end - start
    assert seen == batch.size
    assert len(policy.to_frame()) == len(policy.table_rows())
    assert "effective accuracy" in policy._repr_html_()
    with pytest.raises(InvalidValueError, match="no such number of idle workers"):
        policy.plot(idle=7)


if __name__ == "__main__":
    for each in NOTEBOOKS:
        notebook = json.loads(each.read_text(encoding="utf-8"))
        for number, (code, results) in enumerate(
                zip(_code(notebook), outputs(notebook), strict=True), 1):
            code["outputs"], code["execution_count"] = results, number
        each.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n",
                        encoding="utf-8")
