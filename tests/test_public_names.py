"""``import ramsis`` gives the steps of the command line, and loads nothing before it is used."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ramsis

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [f"ramsis.{name}" for name in dir(ramsis)
            if not name.startswith("_") and name not in ramsis.__all__]
MODULES = ["ramsis", *PACKAGES, "placement_milp"]
"""What the reference documents, a page each."""
INTERNAL = {"cli", "logs", "studies"}
"""Packages that offer nothing at the top: commands, layouts of logs, published experiments."""


@pytest.mark.parametrize("name", ramsis.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(ramsis, name)
    assert callable(value)
    assert value.__doc__
    assert value.__module__.startswith("ramsis.")


def test_every_package_can_be_used_without_importing_it():
    packages = {path.parent.name for path in (ROOT / "ramsis").glob("*/__init__.py")}
    assert packages - INTERNAL <= {name.removeprefix("ramsis.") for name in PACKAGES}
    for name in PACKAGES:
        assert getattr(ramsis, name.removeprefix("ramsis.")) is sys.modules[name]


@pytest.mark.parametrize("name", MODULES)
def test_a_package_has_what_it_lists_and_lists_nothing_foreign(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    if name == "ramsis.serving":
        pytest.importorskip("orjson")
    for public in module.__all__:
        assert not isinstance(getattr(module, public), ModuleType), public
    if hasattr(module, "__path__") and module is not ramsis:
        assert {each for each in dir(module) if not each.startswith("__")} == {*module.__all__}


def test_names_are_listed_and_others_are_not_there():
    assert {name for name in dir(ramsis) if not name.startswith("__")} == {
        *ramsis.__all__, *(name.removeprefix("ramsis.") for name in PACKAGES)}
    with pytest.raises(AttributeError, match="'ramsis' has no attribute 'no_such_name'"):
        _ = ramsis.no_such_name


def test_importing_loads_nothing_but_the_package_itself():
    code = "import json, sys; import ramsis; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                         cwd=ROOT)
    loaded = json.loads(ran.stdout)
    assert [name for name in loaded if name.startswith("ramsis.")] == ["ramsis.lazy_names"]
    assert not {"numpy", "scipy", "numba", "pandas", "click", "rich"} & set(loaded)


def test_the_steps_of_the_command_line_in_python(tmp_path):
    profile = ramsis.load_profile("digits-cpu")
    settings = ramsis.SynthesisSettings(slo_ms=100.0, workers=4, grid="fixed:10", max_queue=4,
                                        service="p95", late="serve", violation_price=0.0,
                                        headroom=0.0)
    loads = ramsis.parse_loads("50:100:50")
    made = ramsis.generate_set(profile, loads, settings, tmp_path).levels
    assert [level.load_qps for level in made] == [50.0, 100.0]
    path = tmp_path / "round-robin-00050qps.json"
    policy = ramsis.read_policy(path)
    assert policy.expectations == made[0].policy.expectations
    assert all(check.holds for check in ramsis.verify_policy(path))
    table = profile.latency_table("p95", 4)
    bound = ramsis.fluid_bound(table, slo_ms=100.0, workers=4, load_qps=50.0, max_batch=4)
    assert policy.expectations.upper_bound == pytest.approx(bound.effective_accuracy)
    problem = ramsis.WorkerProblem.create(
        profile.latency_table("p95", 5), slo_ms=100.0, workers=4, arrivals=ramsis.Poisson(50.0),
        grid="fixed:10", max_queue=4, delay_price=2e-4)
    assert ramsis.solve_worker(problem).gain == pytest.approx(policy.certificate.gain, abs=1e-6)
    again = ramsis.analyse_policy(policy)
    promised = policy.expectations.effective_accuracy
    assert again.effective_accuracy == pytest.approx(promised, abs=1e-3)
