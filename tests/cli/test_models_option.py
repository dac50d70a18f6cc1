"""``--models A,B``: some of a profile's models, in the commands that decide with them."""

from pathlib import Path

import pytest

from ramsis.policy import read
from ramsis.profiles import load, save
from tests.cli.command import refused

LIKE = ("--slo-ms", "100", "--workers", "2", "--load", "100")
COMMANDS = {
    "generate": ("--out", "made", "--service", "p95", "--max-queue", "4", "--grid", "fixed:10"),
    "simulate": ("--scheduler", "greedy", "--duration-s", "2"),
    "bound": (),
    "capacity": ("--scheduler", "greedy", "--duration-s", "2", "--seeds", "1"),
}


def arguments(command: str, profile: object, *more: str) -> tuple[object, ...]:
    like = LIKE[:2] + LIKE[4:] if command == "capacity" else LIKE
    return (command, "--profiles", profile, *like, *COMMANDS[command], *more)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_as_with_a_profile_of_these_models_alone(
    run, tmp_path, tiny_file, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    profile = load(tiny_file)
    fewer = profile.subset([one.name for one in profile.models if one.name != "medium"])
    save(fewer, "fewer.json")
    alone = run(*arguments(command, "fewer.json", "--json"))
    assert alone.code == 0, alone.err
    for order in ("small,large", "large,small"):
        more = ("--overwrite",) if command == "generate" else ()
        chosen = run(*arguments(command, tiny_file, "--models", order, "--json", *more))
        assert chosen.rows == alone.rows
    if command == "generate":
        (file,) = Path("made").glob("*qps.json")
        assert {model.name for model in read(file).models} == {"small", "large"}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_model_is_refused_with_the_near_ones(
    run, tmp_path, tiny_file, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    refused(run(*arguments(command, tiny_file, "--models", "small,mediun")), 2,
            "--models: no such model in the profile: got 'mediun'; allowed: medium")
    refused(run(*arguments(command, tiny_file, "--models", "small,small")), 2, "each once")
    assert not list(tmp_path.iterdir())


def test_each_worker_type_keeps_the_models_that_it_has(run, tmp_path, tiny_file):
    other = tmp_path / "other.json"
    save(load(tiny_file).subset(["small", "medium"]), other)
    types = ("bound", "--profiles", f"a={tiny_file},b={other}", "--workers", "a=1,b=1",
             "--slo-ms", "100", "--load", "100", "--models")
    ran = run(*types, "small,large", "--json")
    assert ran.code == 0, ran.err
    refused(run(*types, "large"), 2, f"the profile {other} has none of these models",
            "small, medium")
