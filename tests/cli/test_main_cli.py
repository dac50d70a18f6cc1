"""The command group: exit codes, one line for every error, help, broken pipes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ramsis
from ramsis import errors
from ramsis.cli import main as entry
from ramsis.cli.main import cli
from tests.cli.command import refused

ROOT = Path(__file__).resolve().parents[2]


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[
    tuple[tuple[str, ...], click.Command]
]:
    """Every command below a group, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands())


def python(code: str, *, shell: str = "{}") -> subprocess.CompletedProcess[str]:
    """Runs ``python -c code`` inside a shell command, here with its parts quoted."""
    command = shell.format(f'"{sys.executable}" -c "{code}"')
    return subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], check=False, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_the_listed_commands_are_the_importable_ones():
    assert set(COMMANDS) >= {("generate",), ("analyze",), ("bound",), ("verify",), ("validate",),
                             ("policy", "show"), ("profile", "import"), ("profile", "check"),
                             ("profile", "show")}
    for words, command in COMMANDS.items():
        assert command.name == words[-1]


@pytest.mark.parametrize("words", [(), *COMMANDS], ids=" ".join)
def test_every_command_has_a_help_page_that_fits_a_screen(run, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ran = run(*words, "-h")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 100
    assert len(listed(ran.out)) <= 16
    monkeypatch.setenv("COLUMNS", "102")
    ran = run(*words, "--help")
    assert max(map(len, ran.out.splitlines())) <= 100
    assert ran.out.startswith(f"Usage: {' '.join(('ramsis', *words))} ")
    command = COMMANDS.get(words, cli)
    known = {option for parameter in command.params if isinstance(parameter, click.Option)
             for option in parameter.opts[:1] if not parameter.hidden}
    more = getattr(command, "more", frozenset())
    always = {"--help", *(("--help-all", "--settings") if more else ())}
    assert more <= known
    assert sorted(listed(ran.out)) == sorted(known - more | always)
    if more:
        assert sorted(listed(run(*words, "--help-all").out)) == sorted(known | always)


def listed(page: str) -> list[str]:
    """The options that a help page has a line on, below its first heading."""
    heading = re.search(r"^[A-Z].*:$", page, re.M)
    return re.findall(r"^  (?:-\w, )?(--[a-z-]+)", page[heading.start() if heading else 0:], re.M)


def test_the_help_page_lists_the_exit_codes_that_errors_have(run):
    text = " ".join(run("--help").out.split())
    listed = text.partition("Exit codes: ")[2].partition("Examples:")[0]
    codes = dict(re.findall(r"(\d+) ([a-z ]+)", listed))
    assert codes.keys() == {"0", "2", "3", "4", "5", "6", "130"}
    known = [value for value in vars(errors).values()
             if isinstance(value, type) and issubclass(value, errors.RamsisError)]
    assert {str(error.exit_code) for error in known if error is not errors.RamsisError} == {
        "2", "3", "4", "5", "6"} <= set(codes)


def test_the_version_is_the_packages(run):
    ran = run("--version")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"ramsis, version {ramsis.__version__}\n"


@pytest.mark.parametrize(("words", "says"), [
    (("nonsense",), ("'nonsense'", "ramsis --help")),
    (("profile", "melt"), ("'melt'", "ramsis profile --help")),
    (("--colour",), ("--colour", "ramsis --help")),
    (("generate",), ("--profiles", "ramsis generate --help")),
    (("analyze",), ("DIR|FILE", "ramsis analyze --help")),
    (("bound", "--load"), ("--load", "argument")),
    (("bound", "more"), ("more", "ramsis bound --help")),
], ids=str)
def test_a_wrong_command_line_gets_one_line_and_exit_code_2(run, words, says):
    refused(run(*words), 2, *says)


@pytest.mark.parametrize("words", [(), ("profile",), ("policy",)], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(run, words):
    ran = run(*words)
    assert "COMMAND [ARGS]..." in ran.out + ran.err
    assert all(name in ran.out + ran.err for name in COMMANDS.get(words, cli).commands)  # type: ignore[attr-defined]
    assert "error" not in ran.err


@pytest.mark.parametrize(("error", "code", "says"), [
    (errors.InvalidValueError("no"), 2, "error: no"),
    (errors.OutputError("no"), 2, "error: no"),
    (errors.InputFileError("no"), 3, "error: no"),
    (errors.InfeasibleError("no"), 4, "error: no"),
    (errors.NotConvergedError("no"), 5, "error: no"),
    (errors.VerificationError("no"), 6, "error: no"),
    (errors.InvalidValueError("two\nlines"), 2, "error: two lines"),
    (MemoryError(), 2, "error: not enough memory for a problem of this size; a coarser "
     "--grid or a smaller --max-queue needs less"),
    (OSError(28, "No space left on device"), 2,
     "error: cannot write the output (No space left on device)"),
    (KeyboardInterrupt(), 130, "interrupted; finished files are whole and stay"),
], ids=repr)
def test_each_kind_of_error_has_its_exit_code_and_one_line(run, monkeypatch, error, code, says):
    def fail(context: click.Context) -> None:
        raise error

    monkeypatch.setattr(cli, "invoke", fail)
    ran = run("bound")
    assert (ran.code, ran.out, ran.err.strip()) == (code, "", says)


def test_leaving_the_process_passes_the_exit_code_on(monkeypatch):
    monkeypatch.setattr(entry, "_run", lambda arguments: 5)
    with pytest.raises(SystemExit) as left:
        entry.main(["bound"])
    assert left.value.code == 5


def test_not_converging_exits_with_5(run, tiny_file, tmp_path, monkeypatch):
    from ramsis.worker.solve import policy_iteration
    from ramsis.worker.solve import worker_model as worker

    solve = policy_iteration.solve_on_nodes
    monkeypatch.setattr(worker, "solve_on_nodes",
                        lambda mdp, **more: solve(mdp, max_rounds=1, **more))
    ran = run("generate", "--profiles", tiny_file, "--slo-ms", 100, "--workers", 4, "--load", 600,
              "--out", tmp_path / "out", "--max-queue", 4)
    refused(ran, 5, "load 600 QPS", "1 iterations", "allowed: more iterations")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error(tiny_file):
    """As ``head -1`` does; also before anything was printed."""
    bound = ("from ramsis.cli.main import main; main(['bound', '--profiles', "
             f"'{tiny_file}', '--slo-ms', '100', '--workers', '4', '--load', '1:60:1'])")
    ran = python(bound, shell="{} | head -3")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "load (QPS)" in ran.stdout
    ran = python("from ramsis.cli.main import main; main(['--help'])", shell="{} | true")
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_gets_one_line():
    ran = python("from ramsis.cli.main import main; main(['--help'])", shell="{} > /dev/full")
    assert ran.returncode == 2
    assert ran.stderr == "error: cannot write the output (No space left on device)\n"


def test_a_name_that_is_too_long_is_named(run):
    refused(run("arrivals", "fit", "x" * 300), 2, "x" * 300, "File name too long")
