"""``ramsis simulate SCENARIO``: rows, files, and what is refused."""

import csv
import itertools
import json

import pytest

from placement_milp import write_placement
from ramsis.planning import SCHEDULERS
from ramsis.sim.schedulers import FLEET_SCHEDULERS
from ramsis.studies.sharing.presets import usher
from tests.cli.command import refused
from tests.placement.samples import shared_problem
from tests.scenario.samples import document, model, stream

OF_FLEETS = {*FLEET_SCHEDULERS, "policies"}  # which load nothing
OWN = '''
from ramsis.sim import Scheduler

class Lazy(Scheduler):
    def __init__(self, engine, factor: float, keep: bool = True):
        super().__init__(engine)
        assert factor == 2.5 and keep is False

class Greedy(Scheduler):
    def on_start(self):
        self.engine.load(0, 1)

class NoScheduler:
    pass
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(
        worker_types=[{"name": "gpu", "count": 2, "memory_mb": 150}],
        models=[model(copies=2, latency=[
            {"worker_type": "gpu", "batch": 1, "latency_ms": 10},
            {"worker_type": "gpu", "batch": 2, "latency_ms": 12}])],
        streams=[stream(workload={"load_qps": 80})], duration_s=3,
        start=[{"worker": "gpu-1", "models": ["m-1"]}])))
    (tmp_path / "own.py").write_text(OWN)
    return str(path)


def test_a_row_for_each_scheduler_with_the_same_requests(run, file):
    names = sorted(set(SCHEDULERS) - OF_FLEETS)
    words = [word for name in names for word in ("--scheduler", name)]
    code, out, _ = run("simulate", file, *words, "--seeds", "2", "--bound", "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [row["scheduler"] for row in rows] == names
    assert len({row["requests"] for row in rows}) == 1
    for row in rows:
        assert row["seeds"] == 2
        assert 0 <= row["in_time"] <= 1
        assert row["in_time"] <= row["bound"] <= 1
        assert row["share_of_bound"] == pytest.approx(row["in_time"] / row["bound"])
        assert row["violation_rate"] == pytest.approx(1 - row["in_time"])
    clockwork = rows[names.index("clockwork")]
    assert clockwork["in_time"] > 0.9
    assert clockwork["loads"] >= 2


def test_schedulers_that_state_more_than_others_have_columns_of_their_own(run, file, tmp_path):
    code, _, err = run("simulate", file, "--scheduler", "clockwork", "--scheduler", "planned",
                       "--csv", str(tmp_path / "a.csv"))
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [bool(row["placement_gap"]) for row in rows] == [False, True]


def test_the_same_seed_gives_the_same_rows_and_files(run, file, tmp_path):
    outputs = []
    for name in ("a", "b"):
        made = [tmp_path / f"{name}.csv", tmp_path / f"{name}.trace"]
        code, out, _ = run("simulate", file, "--scheduler", "clockwork", "--csv", str(made[0]),
                           "--timeline", str(made[1]))
        assert code == 0
        outputs.append((out, *(one.read_bytes() for one in made)))
    assert outputs[0] == outputs[1]
    row, = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    events = json.loads((tmp_path / "a.trace").read_text())["traceEvents"]
    slices = [one for one in events if one["ph"] == "X"]
    assert sum(one["name"].startswith("load ") for one in slices) == int(row["loads"])
    assert sum("batch" in one["args"] for one in slices) == int(row["batches"])
    tracks: dict[int, list[tuple[float, float]]] = {}
    for one in slices:
        tracks.setdefault(one["tid"], []).append((one["ts"], one["ts"] + one["dur"]))
    for spans in tracks.values():
        spans.sort()
        assert all(end <= start + 0.01 for (_, end), (start, _) in itertools.pairwise(spans))


def test_the_figure_is_drawn(run, file, tmp_path):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "usage.svg"
    code, _, _ = run("simulate", file, "--scheduler", "clockwork", "--scheduler", "lru", "--plot",
                     str(figure))
    assert code == 0
    text = figure.read_text()
    assert text.count("<svg") == 1
    assert "hatch" in text.lower() or "pattern" in text.lower()


def test_a_scheduler_of_ones_own_with_parameters(run, file, tmp_path):
    own = str(tmp_path / "own.py")
    code, out, _ = run("simulate", file, "--scheduler", f"{own}:Lazy:factor=2.5,keep=no", "--json")
    assert code == 0
    row, = json.loads(out)["rows"]
    assert row["in_time"] == 0
    assert row["never_answered"] == row["requests"]


def test_options_that_say_nothing_of_what_is_simulated_are_refused(run, file, tmp_path):
    shared = tmp_path / "shared.json"
    write_placement(usher(shared_problem()), shared)
    for words in (("--csv", tmp_path / "o.csv"), ("--plot", tmp_path / "o.png"), ("--bound",),
                  ("--timeline", tmp_path / "o.json"), ("--scheduler", "lru"),
                  ("--by", "stream")):
        refused(run("simulate", "--placement", shared, "--interference", "none", *words), 2,
                words[0], "is not for a placement of models that share GPUs")
    for words in (("--interference", "none"), ("--duration-s", "3")):
        refused(run("simulate", file, *words), 2, words[0], "for a scenario")
    for words in (("--csv", ""), ("--timeline", tmp_path)):
        refused(run("simulate", file, *words), 2)
    refused(run("scenario", "placement", file, "--out", ""), 2, "--out", "no name of a file")
    assert not list(tmp_path.glob("o.*"))


@pytest.mark.parametrize(("name", "message"), [
    ("clockwrk", "unknown scheduler: got 'clockwrk'; allowed: clockwork"),
    ("clockwork:ahead=3",
     "not a parameter of the scheduler: got 'ahead=3'; allowed: ahead_ms=float"),
    ("sigmaos-registry:target=0",
     "target: parameter out of range: got 0; allowed: a finite number >= 1"),
    ("OWN:Lazy", "parameter is missing"),
    ("OWN:NoScheduler", "not a scheduler"),
    ("OWN:Absent", "cannot import scheduler"),
    ("absent.py:Absent", "cannot import scheduler"),
    ("FAILING:Absent", "failing.py, line 1: cannot import scheduler"),
])
def test_bad_schedulers_are_refused_in_a_line(run, file, tmp_path, name, message):
    (tmp_path / "failing.py").write_text("1 / 0")
    name = name.replace("OWN", str(tmp_path / "own.py"))
    name = name.replace("FAILING", str(tmp_path / "failing.py"))
    refused(run("simulate", file, "--scheduler", name), 3, message)


@pytest.mark.parametrize(("code_of_mine", "message"), [
    ("import nothing_of_the_kind", "line 1: cannot import scheduler OWN:Mine (ModuleNotFoundError:"
     " No module named 'nothing_of_the_kind')"),
    ("1 / 0", "line 1: cannot import scheduler OWN:Mine (ZeroDivisionError: division by zero)"),
    ("x = (", "line 1: cannot import scheduler OWN:Mine (SyntaxError: '(' was never closed)"),
    ("exit(1)", "line 1: cannot import scheduler OWN:Mine (SystemExit: 1)"),
    ("BASE\n def __init__(self, engine):\n  self.a = b", "line 4, in __init__: scheduler OWN:Mine "
     "failed (NameError: name 'b' is not defined)"),
    ("BASE\n def on_arrival(self, request):\n  {}[request]",
     "line 4, in on_arrival: scheduler OWN:Mine failed (KeyError: 0)"),
    ("BASE\n def on_arrival(self, request):\n  self.engine.run('gpu', 0, [request])",
     "line 4, in on_arrival: scheduler OWN:Mine failed (TypeError: "),
    ("BASE\n def on_arrival(self, request):\n  raise SystemExit",
     "line 4, in on_arrival: scheduler OWN:Mine failed (SystemExit)"),
    ("BASE\n def on_start(self):\n  self.engine.wake_at(5)\n"
     " def on_timer(self, token):\n  assert 0",
     "line 6, in on_timer: scheduler OWN:Mine failed (AssertionError)"),
])
def test_what_a_scheduler_of_ones_own_raises_is_told_in_a_line(
    run, file, tmp_path, monkeypatch, code_of_mine, message
):
    own = tmp_path / "mine.py"
    own.write_text(code_of_mine.replace(
        "BASE", "from ramsis.sim import Scheduler\nclass Mine(Scheduler):"))
    refused(run("simulate", file, "--scheduler", f"{own}:Mine"), 3,
            f"error: {own}, {message}".replace("OWN", str(own)))
    monkeypatch.setenv("RAMSIS_TRACEBACK", "1")
    assert "Traceback" in run("simulate", file, "--scheduler", f"{own}:Mine").err


def test_the_engine_may_have_any_name_in_a_scheduler_of_ones_own(run, file, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("from ramsis.sim import Scheduler\nclass Mine(Scheduler):\n"
                   " def __init__(self, cluster, most=3):\n  super().__init__(cluster)\n")
    assert run("simulate", file, "--scheduler", f"{own}:Mine:most=4").code == 0


def test_a_scheduler_that_loads_beyond_memory_is_stopped(run, file, tmp_path):
    refused(run("simulate", file, "--scheduler", f"{tmp_path / 'own.py'}:Greedy"), 2, "at 0 ms, "
            "start: load beyond the memory of a worker: got 'gpu-1 (worker 0), model m-2'")


@pytest.mark.slow
def test_options_of_fleets_are_not_for_a_scenario(run, file):
    words = ["--scheduler", "clockwork", "--scheduler", "lru:max_ongoing=2", "--seeds", "2",
             "--bound", "--json"]
    assert len(run("simulate", file, *words).rows) == 2
    for given, code, said in (
            (["--scheduler", "clockwork", "--load", "3"], 2, "--load is not for a scenario"),
            (["--bound"], 2, "give --policy or --scheduler"),
            (["--scheduler", "greedy"], 3, "cannot serve this scenario"),
            (["--scheduler", "central-queue"], 3, "policies:files=DIR")):
        refused(run("simulate", file, *given), code, said)
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 1, "--load",
                3, "--scheduler", "greedy", "--bound"), 2, "--bound is for a scenario")


def test_policies_serve_a_scenario_whose_models_are_all_loaded(run, tiny_file, tmp_path):
    load, slo_ms = 311.3, 73.0
    out = str(tmp_path / "policies")
    given = ["--profiles", tiny_file, "--slo-ms", slo_ms, "--workers", 3]
    assert run("generate", *given, "--load", load, "--grid", "fixed:20", "--max-queue", 2,
               "--service", "p95", "--headroom", 0, "--out", out).code == 0
    models = json.loads(tiny_file.read_text())["models"]
    names = [one["name"] for one in models]
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(document(
        worker_types=[{"name": "cpu", "count": 3}], duration_s=20,
        models=[{"name": one["name"], "accuracy": one["accuracy"], "family": "digits",
                 "latency": [{"worker_type": "cpu", "batch": item["batch"],
                              "latency_ms": item["p95_ms"]} for item in one["batches"]]}
                for one in models],
        streams=[stream(model=names[0], slo_ms=slo_ms, workload={"load_qps": load})],
        start=[{"worker": "cpu", "models": names}])))
    done = run("simulate", path, "--policy", out, "--scheduler", "greedy", "--json")
    on_fleet = run("simulate", *given, "--policy", out, "--load", load, "--service", "p95",
                   "--duration-s", 20, "--monitor", "on", "--json")
    served, greedy = done.rows
    (row,) = on_fleet.rows
    assert served["scheduler"] == f"policies {out}"
    assert served["accuracy"] == pytest.approx(row["accuracy"], abs=0.01)
    assert served["violation_rate"] == pytest.approx(row["violation_rate"], abs=0.01)
    assert greedy["requests"] == served["requests"] > 5000
