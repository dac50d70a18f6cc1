"""Help that fits a screen, options from a file, and what a misspelt word is answered with."""

from pathlib import Path

import click
import pytest

from ramsis.cli.main import cli
from ramsis.cli.options.command import _first_line
from tests.cli.command import refused
from tests.cli.test_main_cli import COMMANDS


def test_the_first_page_has_each_command_once_below_a_heading(run):
    text = run("--help").out.partition("\nPrepare:\n")[2]
    names = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
    assert names == cli.list_commands(click.Context(cli))


def test_no_command_is_described_by_half_a_sentence(run):
    context = click.Context(cli)
    for name in ("", *cli.list_commands(context)):
        if not name or isinstance(cli.get_command(context, name), click.Group):
            text = run(*name.split(), "--help").out.partition("Commands:")[2 if name else 0]
            assert "..." not in text.replace("[ARGS]...", "").replace("FILE...", ""), name


BOUND = ["bound", "--workers", "3", "--load", "417"]
FRONTIER = ["frontier", "--workers", "2", "--load", "613", "--queries", "0", "--json"]


def settings(folder: Path, text: str) -> str:
    path = folder / "settings.toml"
    path.write_text(text)
    return str(path)


def test_a_file_gives_options_and_the_command_line_wins(run, tiny_file, tmp_path):
    file = settings(tmp_path, f'profiles = "{tiny_file}"\nslo-ms = 100\npoints = 3\n'
                    "max_queue = 8\n")
    told = run(*FRONTIER, "--profiles", tiny_file, "--slo-ms", 100, "--points", 3,
               "--max-queue", 8)
    assert told.code == 0, told.err
    read = run(*FRONTIER, "--settings", file)
    assert read.rows == told.rows
    over = run(*FRONTIER, "--settings", file, "--slo-ms", 120.5)
    assert {row["slo_ms"] for row in over.rows} == {120.5}


def test_lists_stand_for_options_that_can_be_repeated(run, tiny_file, tmp_path):
    file = settings(tmp_path, 'scheduler = ["greedy", "jellyfish-plus"]\nload = [217, 300.5]\n')
    ran = run("capacity", "--profiles", tiny_file, "--slo-ms", 100, "--duration-s", 1,
              "--seeds", 1, "--min-accuracy", 0.7, "--json", "--settings", file)
    assert [(row["scheduler"], row["load_qps"]) for row in ran.rows] == [
        ("greedy", 217.0), ("jellyfish-plus", 217.0), ("greedy", 300.5),
        ("jellyfish-plus", 300.5)]


@pytest.mark.parametrize(("text", "code", "words"), [
    ("batchng = 1\n", 3, ("batchng", "allowed: batching", "nearest")),
    ("zzz = 1\n", 3, ("zzz", "allowed: address")),
    ("strict = 3\n", 3, ("strict", "true or false")),
    ("grid = {a = 1}\n", 3, ("grid", "a text, a number, or a list")),
    ("slo-ms = []\n", 3, ("slo-ms", "a text, a number, or a list")),
    ("late = \"never\"\n", 2, ("--late", "'drop'")),
    ("profiles\n", 3, ("not valid TOML",)),
])
def test_a_wrong_file_of_settings_is_refused_in_a_line(run, tmp_path, text, code, words):
    ran = run("generate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 4, "--load",
              400, "--out", tmp_path / "out", "--settings", settings(tmp_path, text))
    refused(ran, code, *words)
    assert not (tmp_path / "out").exists()


def test_a_file_of_settings_that_is_not_there_is_refused(run, tmp_path):
    refused(run("generate", "--settings", tmp_path / "none.toml"), 3, "none.toml")


@pytest.mark.parametrize(("words", "near"), [
    (("cap",), "capacity"), (("simulte", "--load", "3"), "simulate"),
    (("fit", "trace.txt"), "arrivals fit"),
    (("generate", "--worker", "4"), "--workers"),
    (("simulate", "--slo", "4"), "--slo-ms"),
])
def test_a_misspelt_word_is_answered_with_the_nearest(run, words, near):
    refused(run(*words), 2, f"Did you mean '{near}'?", "--help'")


@pytest.mark.parametrize("line", ['scheduler = "evil:F"', 'scheduler = "evil.py:F"',
                                  'arrivals = "evil:F"'])
def test_code_that_a_settings_file_names_is_not_run(run, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nclass F: pass\n")
    (tmp_path / "settings.toml").write_text(f"{line}\n")
    more = () if line.startswith("scheduler") else ("--scheduler", "greedy")
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 2, "--load",
                100, "--duration-s", 1, "--settings", "settings.toml", *more), 2, "evil")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=[" ".join(words) for words in COMMANDS])
def test_short_help_is_written_and_not_cut(command):
    """The first line of a help text stands alone: a sentence, with the default after it."""
    for option in command.params:
        record = option.get_help_record(click.Context(command))
        if record is None or isinstance(option, click.Argument):
            continue
        line = _first_line(record[1])
        text, _, defaults = line.partition("  [")
        assert "\n" not in line
        assert text.rstrip(")").endswith((".", ")")) or not text.partition(" ")[2], line
        assert text.count("(") == text.count(")"), line
        assert (defaults or "]").endswith("]"), line
        assert text[:1].isupper() or text[:1] in "`'" or text.startswith("jellyfish-plus"), line
