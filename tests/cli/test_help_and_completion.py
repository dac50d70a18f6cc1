"""``ramsis help TOPIC``, and completion in shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from ramsis.arrivals.trace_formats import DESCRIPTIONS, TRACE_FORMATS
from ramsis.cli.help import TOPICS
from ramsis.cli.main import cli
from ramsis.profiles import STATISTICS
from ramsis.profiles.importers import FORMATS
from ramsis.sim import FLEET_SCHEDULERS
from tests.cli.command import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_says_something_of_each_word(run, topic):
    assert topic not in cli.list_commands(None)  # type: ignore[arg-type]
    (_, about), *lines = TOPICS[topic][1]()
    assert about
    assert len(lines) >= 5
    assert all(name and text and not text.startswith(".") for name, text in lines)
    ran = run("help", topic)
    assert (ran.code, ran.err) == (0, "")
    assert all(name in ran.out for name, _ in lines)


def test_topics_have_every_name_that_there_is():
    for topic, names in (("profiles", FORMATS), ("traces", TRACE_FORMATS),
                         ("schedulers", FLEET_SCHEDULERS)):
        assert {name for name, _ in TOPICS[topic][1]()} == {"", *names}
    assert set(DESCRIPTIONS) == set(TRACE_FORMATS)


@pytest.mark.parametrize("words", [("generate",), ("profile", "import"), ("profile",)])
def test_help_of_a_command_is_its_help_page(run, words):
    assert run("help", *words).out == run(*words, "--help").out


def test_help_alone_lists_commands_and_topics(run):
    shown = run("help").out
    assert shown.startswith(run("--help").out)
    assert all(f"  {topic} " in shown for topic in TOPICS)


@pytest.mark.parametrize(("words", "near"), [
    (("scheduler",), "schedulers"), (("genrate",), "generate"), (("profile", "imprt"), "import"),
    (("bound", "x"), "no further word"),
])
def test_a_wrong_topic_is_refused_with_near_ones(run, words, near):
    refused(run("help", *words), 2, "No such topic or command", near)


def completed(words: str, *, of: int) -> list[str]:
    """What a shell is told to offer for the last of some words."""
    shell = BashComplete(cli, {}, "ramsis", "_RAMSIS_COMPLETE")
    asked = {"COMP_WORDS": f"ramsis {words}", "COMP_CWORD": str(of)}
    with pytest.MonkeyPatch.context() as environment:
        environment.chdir(ROOT)
        for name, value in asked.items():
            environment.setenv(name, value)
        return shell.complete().split()


def test_commands_options_and_names_are_completed():
    assert completed("ge", of=1) == ["plain,generate"]
    assert "plain,--slo-ms" in completed("bound --sl", of=2)
    assert completed("bound --profiles dig", of=3) == ["plain,digits-cpu"]
    assert completed("bound --profiles ./a", of=3) == ["file,./a"]
    assert completed("simulate --scheduler bent", of=3) == ["plain,bentoml"]
    assert completed("profile show dig", of=3) == ["plain,digits-cpu"]
    assert completed("report ./a", of=2) == ["file,./a"]
    assert completed("verify ./a ./b", of=3) == ["file,./b"]
    assert set(completed("profile show --statistic p", of=4)) == {
        f"plain,{name}" for name in STATISTICS if name.startswith("p")}


def test_the_command_answers_a_shell():
    ran = subprocess.run(
        [sys.executable, "-m", "ramsis"], check=False, capture_output=True, text=True,
        env={**os.environ, "_RAMSIS_COMPLETE": "bash_complete", "COMP_WORDS": "ramsis ge",
             "COMP_CWORD": "1"})
    assert ran.stdout.split() == ["plain,generate"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_for_the_shell(run, shell):
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_RAMSIS_COMPLETE={shell}_complete" in ran.out
    refused(run("completion", "cmd"), 2, "bash")


_IN_SHELL = {
    "bash": 'eval "$(ramsis completion bash)"; COMP_WORDS=(ramsis pol); COMP_CWORD=1; '
            '_ramsis_completion ramsis; echo "${COMPREPLY[@]}"',
    "fish": 'ramsis completion fish | source; complete -C "ramsis pol"',
}


@pytest.mark.parametrize("shell", _IN_SHELL)
def test_a_shell_completes_with_it(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    program = tmp_path / "ramsis"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ramsis "$@"\n')
    program.chmod(0o755)
    ran = subprocess.run([shell, "-c", _IN_SHELL[shell]], check=False, capture_output=True,
                         text=True, env={**os.environ, "PYTHONPATH": str(ROOT),
                              "HOME": str(tmp_path),
                              "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    assert ran.stdout.split()[:1] == ["policy"], ran.stderr
