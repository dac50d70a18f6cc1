"""Every example that a help page shows runs as it stands."""

import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from placement_milp import place, problem_from_document, write_placement
from ramsis import profiles
from ramsis.cli.main import cli
from ramsis.plugins import trust
from ramsis.sized.policy import read_sized, write_sized
from ramsis.studies.sharing.presets import usher
from ramsis.synthesis import SynthesisSettings, generate_set
from tests.cli.test_export_code_cli import sized_document
from tests.cli.test_main_cli import COMMANDS
from tests.placement.samples import cut_document, problem, shared_problem
from tests.profiles.samples import write_sources
from tests.scenario.samples import document

ROOT = Path(__file__).resolve().parents[2]
PAGES = {(): cli, **COMMANDS}


def examples(help_text: str | None) -> list[str]:
    """Command lines of the ``Examples:`` block of a help text."""
    block = inspect.cleandoc(help_text or "").partition("Examples:\n")[2]
    lines = re.findall(r"^ *\$ ramsis ((?:.*\\\n)*.+)$", block, re.M)
    return [re.sub(r"\\\n *", "", line) for line in lines]


# Those of `load` and `serve --upstream` need a server: the tests of both have one.
SHOWN = [line for command in PAGES.values() for line in examples(command.help)
         if "--upstream" not in line]


@pytest.fixture(scope="module")
def example_set(tmp_path_factory):
    """The example set of the repository, or one made like it."""
    folder = tmp_path_factory.mktemp("example") / "example"
    if (ROOT / "policies_out" / "example").is_dir():
        shutil.copytree(ROOT / "policies_out" / "example", folder)
    else:
        chosen = SynthesisSettings(slo_ms=100.0, workers=4)
        generate_set(profiles.load("digits-cpu"), (400.0,), chosen, folder)
    return folder


@pytest.fixture
def workplace(tmp_path, example_set, monkeypatch):
    """A folder with the files that the examples name."""
    write_sources(tmp_path)
    gaps = np.random.default_rng(5).exponential(20.0, size=400)
    (tmp_path / "trace.csv").write_text(
        "arrival_ms,tokens\n" + "".join(f"{t:.6f},7\n" for t in np.cumsum(gaps)))
    shutil.copytree(example_set, tmp_path / "policies_out" / "example")
    (tmp_path / "sized.json").write_text(json.dumps(sized_document()))
    write_sized(read_sized(tmp_path / "sized.json"), tmp_path / "sized", "ramsis generate")
    (tmp_path / "sweep.toml").write_text(
        'profiles = "digits-cpu"\nworkers = 4\nslo_ms = 25\nload_qps = 400\nduration_s = 1\n'
        'scheduler = ["round-robin", "greedy"]\n')
    write_placement(place(problem()), tmp_path / "placement.json")
    write_placement(place(problem_from_document(cut_document())), tmp_path / "gpus.json")
    write_placement(usher(shared_problem()), tmp_path / "shared.json")
    (tmp_path / "requests.csv").write_text(
        "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
        + "".join(f"{t:.3f},{t:.3f},{t + 0.006:.3f},25,served,svm-poly-6400,1,1,0,1\n"
                  for t in np.arange(0.0, 2.0, 0.01)))
    (tmp_path / "gateway.csv").write_text(
        "received,done,net\n2026-03-02T10:00:00Z,2026-03-02T10:00:00.012Z,svm-poly-6400\n"
        "2026-03-02T10:00:00.1Z,2026-03-02T10:00:00.141Z,svm-poly-6400\n")
    for batch in (1, 4, 8):  # perf_analyzer -b BATCH -f perf_bBATCH.csv, in µs
        (tmp_path / f"perf_b{batch}.csv").write_text(
            "Concurrency,Inferences/Second,Client Send,Server Queue,Server Compute Infer,"
            "Client Recv,p50 latency,p90 latency,p95 latency,p99 latency\n"
            f"1,{1e6 * batch / (8000 + 1000 * batch):.3f},100,50,{7800 + 1000 * batch},50,"
            f"{7900 + 1000 * batch},{8200 + 1000 * batch},{8300 + 1000 * batch},"
            f"{8500 + 1000 * batch}\n")
    (tmp_path / "scenario.json").write_text(json.dumps(document()))
    (tmp_path / "own.py").write_text(
        "from ramsis.sim import Scheduler\n\n\nclass Mine(Scheduler):\n"
        "    def __init__(self, engine, alpha: float):\n        super().__init__(engine)\n")
    (tmp_path / "answering.py").write_text("def zero(x):\n    return x[:, 0]\n")
    names = [model.name for model in profiles.load("digits-cpu").models]
    (tmp_path / "variants.toml").write_text("".join(
        f'[[variants]]\nname = "{name}"\nbackend = "callable"\nmodel = "answering:zero"\n'
        for name in names) + '[[inputs]]\nname = "x"\ndatatype = "FP32"\nshape = [4]\n')
    monkeypatch.chdir(tmp_path)
    trust("answering:zero")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in SHOWN if not line.startswith("load ")])
def test_the_examples_of_the_help_pages_run(run, workplace, line):
    if "--scaling scaled" in line:
        assert run(*shlex.split("scale --profiles image-cpu --slo-ms 350 --trace day --scale 0.03 "
                                "--stretch 6 --startup-s 10 --min-effective-accuracy 0.7 "
                                "--max-violation 0.02 --max-workers 4 --levels 4 "
                                "--out scaled")).code == 0
    ran = run(*shlex.split(line))
    assert (ran.code, "error" in ran.err, bool(ran.out.strip())) == (0, False, True), ran


@pytest.mark.parametrize(
    "words", [words for words, command in COMMANDS.items() if not hasattr(command, "commands")],
    ids=" ".join,
)
def test_every_command_shows_an_example_of_itself(words):
    lines = examples(COMMANDS[words].help)
    assert lines
    for line in lines:
        assert shlex.split(line)[: len(words)] == list(words)
