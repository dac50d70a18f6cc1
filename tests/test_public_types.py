"""Wrong types at every public entry point: a line that names the argument, none from inside."""

import contextlib
import importlib
import inspect
import io
import math
import pickle
import signal
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import placement_milp
import ramsis
from ramsis import profiles
from ramsis.checks import check_arguments
from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import InvalidTypeError, RamsisError
from ramsis.mdp.sparse import SparseMDP
from ramsis.profiles import LatencyTable
from ramsis.sim import Engine, scheduler
from ramsis.studies.sharing.gpu.kernels import V100, Launch
from ramsis.worker.problem import WorkerProblem
from ramsis.worker.solve.policy_iteration import solve_on_nodes
from ramsis.worker.structure import build_structured
from tests.placement.samples import document, problem
from tests.policy.samples import small_policy
from tests.profiles.samples import model
from tests.scenario.samples import scenario
from tests.synthesis.samples import SETTINGS, tiny_profile

UNCHECKED = ("RandomTimes", "trust")  # a named tuple that solvers make; texts
WRONG: tuple[Any, ...] = (None, "x", "", [], [None], ["x"], {}, b"x", object(), math.nan, math.inf,
                          -math.inf, -1, 0, 1.5, -0.5, 10**30, 1e308, True, 1j, np.zeros(3),
                          np.zeros((2, 0)), np.float32(1.5), np.int64(3), lambda *_, **__: None)


def entry_points() -> dict[str, Any]:
    """The functions, classes and class methods that are offered at the top, by name."""
    offered = [getattr(ramsis, name) for name in ramsis.__all__ if name not in UNCHECKED]
    found: dict[str, Any] = {}
    for value in (*offered, placement_milp.place, placement_milp.read_problem):
        found[f"{value.__module__}.{value.__qualname__}"] = value
        if isinstance(value, type):
            for key, member in vars(value).items():
                if isinstance(member, classmethod | staticmethod) and not key.startswith("_"):
                    found[f"{value.__module__}.{value.__qualname__}.{key}"] = getattr(value, key)
    return found


ENTRY_POINTS = entry_points()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A good value by the name of a parameter."""
    folder = tmp_path_factory.mktemp("good")
    tiny = tiny_profile()
    profiles.save(tiny, folder / "tiny.json")
    table = tiny.latency_table("p95", max_batch=8)
    cluster = Cluster.of(tiny, workers=2, slo_ms=100.0)
    worker = WorkerProblem.create(table, slo_ms=100.0, workers=2, arrivals=ramsis.Poisson(100.0),
                                  grid="fixed:4", max_queue=2)
    structured = build_structured(worker)
    solve_on_nodes(structured)  # compiles, once, for longer than a call may take
    mdp = SparseMDP.from_pairs([(0, 0, {0: 0.5, 1: 0.5}, 1.0), (1, 0, {0: 1.0}, 4.0)])
    return {
        "profile": tiny, "profiles": {"gpu": tiny}, "table": table, "cluster": cluster,
        "slo_ms": 100.0, "workers": 2, "load_qps": 100.0, "loads_qps": (100.0,),
        "loads": (100.0,), "settings": SETTINGS, "arrivals": "poisson", "mdp": mdp,
        "discount": 0.9, "policy": small_policy(), "problem": problem(), "document": document(),
        "path": folder / "tiny.json", "file": "tiny.json", "folder": folder / "out",
        "path_or_name": str(folder / "tiny.json"), "out": folder / "out", "name": "a",
        "accuracy": 0.8, "batches": model("a", 0.5, {1: 4.0}).batches, "p95_ms": 5.0, "batch": 1,
        "models": tiny.models, "duration_ms": 100.0, "share": 0.5, "slo_classes": {100.0: 1.0},
        "workload": None, "targets": ramsis.CapacityTargets(max_violation=0.5),
        "text": "100", "scheduler": "jellyfish-plus",
        "transition": [[[1.0]]], "reward": [[1.0]],
        "classes": (SloClass(100.0, 1.0),), "worker_types": (WorkerType("a", tiny, 2),),
        "WorkerProblem": worker, "StructuredMDP": structured,
        "created_by": "test", "seeds": (0,), "chain": [[1.0]], "scenario": scenario(),
        "seed": 0, "specs": [scheduler("lru")], "url": "http://x", "run": Engine.of_scenario(
            scenario(), seed=0).serve(scheduler("lru")), "launch": Launch((1, 1, 1), (1, 1, 1)),
        "gpu": V100, "model": "a", "gpu_type": "gpu", "mps_share": 0.5, "models_of": tiny.models,
    }


def innermost(error: BaseException) -> traceback.FrameSummary:
    return traceback.extract_tb(error.__traceback__)[-1]


def came_from_inside(error: Exception) -> bool:
    """Whether it is neither ours nor Python's own about the names and number of arguments."""
    if isinstance(error, RamsisError):
        return False
    return not (isinstance(error, TypeError) and innermost(error).name in ("call", "at_once"))


def call(function: Any, arguments: dict[str, Any]) -> Exception | None:
    """The error of a call, if any; 10 s are enough for every call."""
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(**arguments)
    except Exception as error:
        return error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return None


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_wrong_types_are_refused_by_name(name, good, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = ENTRY_POINTS[name]
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return
    usual = {key: good.get(str(one.annotation), good.get(key)) for key, one in parameters.items()
             if (key in good or str(one.annotation) in good)
             and one.default is inspect.Parameter.empty}
    wrong = []
    for key, one in parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD, one.POSITIONAL_ONLY):
            continue
        for value in WRONG:
            error = call(function, {**usual, key: value})
            if error is not None and came_from_inside(error):
                last = innermost(error)
                wrong.append(f"{key}={value!r:.40}: {type(error).__name__}: {error!s:.100} "
                             f"({Path(last.filename).name}:{last.lineno})")
    assert not wrong, "\n".join(wrong)


def test_a_refusal_names_function_argument_and_what_is_allowed(tiny):
    table = tiny.latency_table("p95", max_batch=4)
    with pytest.raises(InvalidTypeError) as refusal:
        ramsis.fluid_bound(table, slo_ms=100.0, workers="four", load_qps=100.0)
    assert str(refusal.value) == ("fluid_bound: workers: wrong type (str): got 'four'; allowed: "
                                  "a whole number or a sequence, each a whole number")
    assert isinstance(refusal.value, TypeError)
    assert isinstance(refusal.value, ValueError)
    with pytest.raises(InvalidTypeError, match=r"Poisson: load_qps: wrong type \(list\)"):
        ramsis.Poisson([1.0])
    load, cluster = ramsis.sim.ConstantLoad(100.0, 1000.0), ramsis.Cluster.of(
        tiny, workers=1, slo_ms=100.0)
    with pytest.raises(InvalidTypeError, match=r'class of your own, Plan\("name", Class\)'):
        ramsis.simulate(cluster, ramsis.sim.Scheduler, load)


def test_numbers_of_numpy_and_sequences_of_any_kind_are_taken():
    found = LatencyTable.measured(np.array(["a"], dtype=object), np.array([0.5]),
                                  [[np.float32(3.0)]])
    assert found.max_batch == 1
    assert ramsis.Poisson(np.int32(100)).rate_per_ms == 0.1


def test_functions_stay_what_they_are():
    assert ramsis.simulate is importlib.import_module("ramsis.sim.experiment").simulate
    assert pickle.loads(pickle.dumps(ramsis.simulate)) is ramsis.simulate
    assert "cluster" in inspect.signature(ramsis.simulate).parameters
    twice = {"simulate": ramsis.simulate, "__name__": "ramsis.sim"}
    check_arguments(twice, ["simulate"])
    assert twice["simulate"] is ramsis.simulate
