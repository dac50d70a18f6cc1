"""What commands print: tables of few columns that fit a line, and JSON of one form."""

import json
import re

import click
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from placement_milp import place, write_placement
from ramsis import profiles
from ramsis.cli.output.rows import WIDTH, print_rows
from ramsis.schemas import read_schema
from ramsis.synthesis import SynthesisSettings, generate_set
from ramsis.tables import Column
from tests.cli.command import refused
from tests.cli.test_main_cli import COMMANDS
from tests.placement.samples import problem
from tests.scenario.samples import document
from tests.synthesis.samples import tiny_profile

RESULTS = read_schema("ramsis.cli.output", "results-1")
FLEET = ["--profiles", "tiny.json", "--slo-ms", "100", "--workers", "2"]
LOADS = ["--load", "217,96000.5"]
QUICK = ["--grid", "fixed:10", "--max-queue", "8"]
CASES = {
    "check": "profile check digits-cpu", "show": "profile show digits-cpu",
    "fit": "arrivals fit times.csv",
    "generate": ["generate", *FLEET, *LOADS, *QUICK, "--out", "out"],
    "stations": "generate --profiles a=tiny.json,b=tiny.json --slo-ms 90:0.3,120:0.7 "
                "--workers a=1,b=2 --load 117 --out out2 --grid fixed:10 --max-queue 8",
    "analyze": "analyze set", "verify": "verify set --all",
    "table": "policy show set/round-robin-00217qps.json",
    "central table": "policy show common/central-queue-00217qps.json",
    "bound": ["bound", *FLEET, *LOADS],
    "bound of several": "bound --profiles a=tiny.json,b=tiny.json --slo-ms 90:0.3,120:0.7 "
                        "--workers a=1,b=2 --load 117",
    "frontier": ["frontier", *FLEET, "--load", "317", "--points", "3", "--queries", "2000"],
    "simulate": ["simulate", *FLEET, *LOADS, "--duration-s", "1", "--policy", "set",
                 "--scheduler", "jellyfish-plus"],
    "placement": "simulate --placement placement.json --duration-s 1",
    "sweep": "sweep sweep.toml --out sweep --processes 1",
    "cluster": "simulate scenario.json --scheduler clockwork",
    "groups": "simulate scenario.json --scheduler clockwork --scheduler lru --by stream "
              "--by tenant --by family --by model --by copy",
    "place": "place problem.json --out placed.json",
    "capacity": "capacity --profiles tiny.json --slo-ms 100 --load 217,300.5 --min-accuracy 0.7 "
                "--duration-s 1 --seeds 2 --scheduler round-robin:grid=fixed:10,max_queue=8 "
                "--scheduler central-queue:grid=fixed:10,max_queue=8",
    "audit": "audit requests.csv --profiles tiny.json --workers 2 --seeds 1 "
             "--scheduler round-robin:grid=fixed:10,max_queue=8",
}
LONGEST = ("stations", "placement", "capacity")
"""Those that make policies, whose JSON is tested each time."""
WORDS = {name: case.split() if isinstance(case, str) else case for name, case in CASES.items()}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the files that the commands name."""
    folder = tmp_path_factory.mktemp("forms")
    tiny = tiny_profile()
    profiles.save(tiny, folder / "tiny.json")
    for name, dispatch in (("set", "round-robin"), ("common", "central-queue")):
        generate_set(tiny, (217.0,), SynthesisSettings(
            slo_ms=100.0, workers=2, grid="fixed:10", max_queue=8, dispatch=dispatch),
            folder / name)
    times = np.cumsum(np.random.default_rng(5).exponential(0.0031, 400))
    (folder / "times.csv").write_text("arrival_s\n" + "".join(f"{t:.6f}\n" for t in times))
    (folder / "scenario.json").write_text(json.dumps(document()))
    write_placement(place(problem()), folder / "placement.json")
    (folder / "problem.json").write_text(json.dumps(problem().to_document()))
    (folder / "sweep.toml").write_text(
        'profiles = "tiny.json"\nworkers = 2\nslo_ms = 100\nload_qps = 217\nduration_s = 1\n'
        'scheduler = ["greedy"]\n')
    name = tiny.models[0].name
    (folder / "requests.csv").write_text(
        "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
        + "".join(f"{t:.3f},{t:.3f},{t + 0.006:.3f},100,served,{name},1,1,0,1\n"
                  for t in np.arange(0.0, 1.0, 0.01)))
    return folder


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in LONGEST else ()) for name in CASES])
def test_what_is_printed_by_default_fits_a_line(run, workplace, name, monkeypatch):
    monkeypatch.chdir(workplace)
    ran = run(*WORDS[name])
    assert ran.code == 0, ran.err
    assert ran.out
    assert max(map(len, ran.out.splitlines())) <= WIDTH


@pytest.mark.parametrize("name", CASES)
def test_json_has_one_form_that_the_schema_describes(run, workplace, name, monkeypatch):
    monkeypatch.chdir(workplace)
    ran = run(*WORDS[name], "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    Draft202012Validator(RESULTS).validate(found)
    assert found["command"] == "ramsis " + " ".join([*WORDS[name], "--json"])
    known = RESULTS["$defs"]["row"]["properties"]
    assert {key for row in found["rows"] for key in row} <= set(known)


def test_the_schema_says_what_each_key_is_and_names_each_command():
    Draft202012Validator.check_schema(RESULTS)
    assert all(one["description"].endswith(".")
               for one in RESULTS["$defs"]["row"]["properties"].values())
    assert all(one["description"].endswith(".") for name in ("grouping", "group")
               for one in RESULTS["$defs"][name]["properties"].values())
    patterns = [one["if"]["properties"]["command"]["pattern"] for one in RESULTS["allOf"]]
    with_json = {" ".join(words) for words, command in COMMANDS.items()
                 if "as_json" in {one.name for one in command.params}}
    assert all(any(re.search(pattern, f"ramsis {one} --json") for pattern in patterns)
               for one in with_json)


def test_results_are_validated(run, workplace, tmp_path):
    made = run("bound", "--profiles", workplace / "tiny.json", *FLEET[2:], *LOADS, "--json")
    good = tmp_path / "bound.json"
    good.write_text(made.out)
    said = run("validate", good)
    assert (said.code, said.err) == (0, "")
    assert "2 rows" in said.out
    bad = tmp_path / "bad.json"
    bad.write_text(made.out.replace('"load_qps": 217', '"load_qps": -217'))
    refused(run("validate", bad), 3, "rows[0].load_qps", "minimum")


_COLUMNS = (Column("name", "name of the model"), Column("share", "share of the requests", ".4%"),
            Column("hidden", "hidden", "d", wide=True), Column("text", "a longer text"))
_ROWS = [{"name": "small", "share": 0.1234567, "hidden": 7, "text": "word " * 30},
         {"name": "x" * 70, "share": None, "hidden": 8, "text": "short"}]


def printed(capsys: pytest.CaptureFixture[str], *, wide: bool) -> list[str]:
    with click.Context(click.Command("x")) as context:
        context.meta["ramsis.wide"] = wide
        print_rows(_COLUMNS, _ROWS)
    return capsys.readouterr().out.splitlines()


def test_a_table_is_broken_into_lines_without_losing_a_letter(capsys):
    lines = printed(capsys, wide=False)
    assert max(map(len, lines)) <= WIDTH
    text = "\n".join(lines)
    assert text.count("x") == 70 + 1
    assert text.count("word") == 30
    assert "12.3457%" in text
    assert "hidden" not in text


def test_a_wide_table_has_all_columns_and_one_line_a_row(capsys):
    lines = printed(capsys, wide=True)
    assert len(lines) == 3
    assert "hidden" in lines[0]
    assert lines[1].count("word") == 30
