"""What the pages show is what the program does.

The blocks of a page run in order in one folder: Python blocks, the ``$ ramsis`` commands of
``console`` blocks, and ``$ cat FILE``, which makes the file. What stands below a command, or in a
``text`` block right after a Python block, must be what it prints; a line ``...`` stands for any
lines. A ``console`` block without output only has to succeed. ``<!-- not run -->`` before a block
leaves it out. Run as a program, this file writes what is printed into the pages.
"""

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest

import ramsis
from ramsis.cli.main import cli, main
from tests.test_public_names import MODULES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")),
         *sorted((ROOT / "docs" / "start").glob("*.md")),
         *sorted((ROOT / "docs" / "howto").glob("*.md")),
         *sorted((ROOT / "docs" / "serving").glob("*.md")),
         *sorted((ROOT / "docs" / "evaluation").glob("*.md"))]
SHORT = ("README.md", "architecture.md", "bounds.md", "solvers.md")
"""Pages with blocks that `make test` runs."""
OTHERS = [ROOT / "CHANGELOG.md", ROOT / "policies_out/README.md", ROOT / "profiles/README.md"]

_BLOCK = re.compile(
    r"(?P<mark><!-- not run -->\n+)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", re.M)


def _words(command: str) -> list[str]:
    """The words of a shell command, which may go on after a backslash."""
    return shlex.split(command.replace("\\\n", " "), comments=True)


@dataclass
class Page:
    """Runs the blocks of a page in the current folder."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    code: int = 0

    def shown(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Each block that shows output, and the text that it should have."""
        printed, end = None, 0
        for block in _BLOCK.finditer(text):
            follows = not text[end : block.start()].strip()
            end = block.end()
            if block["mark"]:
                printed = None
            elif block["kind"] == "console":
                yield block, self.console(block["text"])
            elif block["kind"] == "python":
                printed = self.python(block["text"])
            elif block["kind"] == "text" and printed is not None and follows:
                yield block, printed
                printed = None

    def python(self, text: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(text, "<page>", "exec", dont_inherit=True), self.names)
        return output.getvalue()

    def console(self, text: str) -> str:
        bare = all(line.startswith("$ ") for line in text.splitlines())
        result = ""
        for command, below in _COMMAND.findall(text):
            result += f"$ {command}"
            output = self.command(_words(command), below)
            assert not bare or self.code == 0, f"{command}: {output}"
            result += "" if bare else output
        return result

    def command(self, words: list[str], below: str) -> str:
        match words:
            case ["ramsis", *arguments]:
                return self.ramsis(arguments)
            case ["echo", "$?"]:
                return f"{self.code}\n"
            case ["cat", name]:
                Path(name).write_text(below, encoding="utf-8")
        return below

    def ramsis(self, arguments: list[str]) -> str:
        output = io.StringIO()
        with (
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            pytest.raises(SystemExit) as stop,
        ):
            main(arguments)
        self.code = int(stop.value.code or 0)
        return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def fits(shown: str, printed: str) -> bool:
    """Whether a block shows what is printed; ``...`` stands for any lines."""
    lines = (r"(?:.*\n)*" if line == "..." else re.escape(line) + r"\n"
             for line in shown.splitlines())
    return re.fullmatch("".join(lines), printed) is not None


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=[] if page.name in SHORT else [pytest.mark.slow], id=page.name)
    for page in PAGES])
def test_a_page_shows_what_its_blocks_print(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # tables are as wide as on no terminal
    for block, printed in Page().shown(page.read_text(encoding="utf-8")):
        assert fits(block["text"], printed), f"{block['text']}\n--- but it prints\n{printed}"


def test_the_readme_shows_what_make_demo_runs():
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe
    commands = re.findall(r"^\t\$\(BIN\)/(ramsis (?:.*\\\n)*.*)$", recipe[1], re.M)
    assert [_words(command)[1] for command in commands] == ["generate", "place"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in commands:
        kind = _words(command)[1]
        shown = re.search(rf"^\$ (ramsis {kind} (?:.*\\\n)*.*)$", readme, re.M)
        assert shown
        assert _words(shown[1]) == _words(command)


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from _commands(below, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(_commands(cli, "ramsis"))


@pytest.mark.parametrize("path", COMMANDS)
def test_the_command_line_page_has_every_command_and_its_arguments(path):
    command = COMMANDS[path]
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    heading = re.search(rf"^## `{path}\b(.*)`$", page, re.M)
    assert heading, f"no section on {path}"
    assert heading[1].split() == [one.make_metavar(click.Context(command))
                                  for one in command.params if isinstance(one, click.Argument)]


def _anchors(page: Path) -> set[str]:
    """Names that a link into a page can have: its headings', and its own ``(name)=``."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}
    return slugs | set(re.findall(r"^\((.*)\)=$", text, re.M))


@pytest.mark.parametrize("page", [*PAGES, *OTHERS],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_names_lead_somewhere(page):
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        if name.startswith("https:"):
            continue
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link
    for name in re.findall(r"\{mod\}`~?([\w.]+)`", text):
        importlib.import_module(name)
    for name in re.findall(r"\{(?:func|class)\}`~?([\w.]+)`", text):
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def _functions() -> dict[str, Callable[..., Any]]:
    """The functions that a page may call by their bare names."""
    public = {name: getattr(package, name) for package in (ramsis.mdp, ramsis)
              for name in package.__all__}
    return {name: value for name, value in public.items() if inspect.isfunction(value)}


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_a_call_in_the_text_is_one_that_can_be_made(page):
    functions = _functions()
    for call in re.findall(r"`(\w+\([^`…]*\))`", _BLOCK.sub("", page.read_text(encoding="utf-8"))):
        parsed = ast.parse(call, mode="eval").body
        assert isinstance(parsed, ast.Call)
        assert isinstance(parsed.func, ast.Name)
        if parsed.func.id in functions:
            named = {each.arg: each.value for each in parsed.keywords if each.arg}
            inspect.signature(functions[parsed.func.id]).bind(*parsed.args, **named)


def test_the_reference_has_a_page_for_every_public_package():
    listed = re.findall(r"^   ([a-z_.]+)$", (ROOT / "docs/reference.md").read_text(), re.M)
    assert sorted(listed) == sorted(MODULES)


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_modules_that_a_page_for_maintainers_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text)
    assert len(named) > 5
    assert [name for name in named
            if not ((ROOT / name).exists() or (ROOT / "ramsis" / name).exists())] == []


def test_every_page_is_in_the_table_of_contents():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = "\n".join(re.findall(r"```\{toctree\}\n(.*?)```", index, re.S))
    names = {line for line in listed.splitlines() if line and not line.startswith(":")}
    docs = ROOT / "docs"
    assert names == {page.relative_to(docs).with_suffix("").as_posix()
                     for page in PAGES if page.is_relative_to(docs)} - {"index"}


def _rewrite(page: Path) -> None:
    """Put what the blocks of a page print below them."""
    text = page.read_text(encoding="utf-8")
    result, end = "", 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for block, printed in Page().shown(text):
            if not fits(block["text"], printed):
                result += text[end : block.start("text")] + printed
                end = block.end("text")
    if end:
        page.write_text(result + text[end:], encoding="utf-8")


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    for each in PAGES:
        _rewrite(each)
