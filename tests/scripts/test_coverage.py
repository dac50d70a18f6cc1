"""The rows of the five texts: the tables, the places in the code and the commands."""

import argparse
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import texts as rows_of_texts

from ramsis.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
ROWS = rows_of_texts.read_rows()
COMMANDS = sorted({row.command for row in ROWS if row.command})


class ParsedError(Exception):
    """The script has parsed its options."""


def test_every_row_is_in_a_table_or_a_list():
    shown = rows_of_texts.render(ROWS)
    assert [row for row in ROWS if row.what not in shown] == []
    assert [row for row in ROWS if row.reason and row.reason not in shown] == []


def test_rows_are_numbered_and_graded():
    for text in rows_of_texts.TEXTS:
        numbers = [int(row.row) for row in ROWS if row.text == text]
        assert numbers == list(range(1, len(numbers) + 1))
    assert {row.text for row in ROWS} == set(rows_of_texts.TEXTS)
    for row in ROWS:
        assert row.grade in rows_of_texts.GRADES
        assert row.what
        assert row.reason or row.grade == "whole", f"{row.text} {row.row}: why not whole"
        assert row.where or row.grade == "missing", f"{row.text} {row.row}: where"
        assert not set("|\n") & set("".join(row))


@pytest.mark.parametrize("place", sorted({place for row in ROWS for place in row.where.split()}))
def test_places_are_in_the_tree(place):
    path, _, name = place.partition(":")
    assert (ROOT / path).exists()
    assert not name or name in (ROOT / path).read_text("utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command, monkeypatch):
    program, *words = shlex.split(command)
    if program == "pytest":
        assert all((ROOT / word).exists() for word in words)
    elif program == "ramsis":
        _parse_ramsis(words)
    else:
        assert program == "python"
        _parse_script(words, monkeypatch)


def _parse_ramsis(words: list[str]) -> None:
    """Look each command and option up; values are not converted, as they may name files."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        subcommand = command.get_command(context, words[0])
        assert subcommand is not None, words[0]
        command, words = subcommand, words[1:]
        context = click.Context(command, parent=context)
    command.make_parser(context).parse_args(words)


def _parse_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the script until its options are parsed."""
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        parse(parser, *arguments)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    with pytest.raises(ParsedError):
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")
