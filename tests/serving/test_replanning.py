"""Service times that drift are reported, measured, and policies made anew with them."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, load, save
from tests.serving.servers import make, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.audit.drift import ARRIVALS, SERVICE, DriftAlarm  # noqa: E402
from ramsis.errors import InputFileError, InvalidValueError  # noqa: E402
from ramsis.serving.policies import read_policies  # noqa: E402
from ramsis.serving.replanning.on_drift import (  # noqa: E402
    Replanning,
    options_of,
    profile_option,
    rescaled,
)


def profile() -> ProfileSet:
    def model(name: str, accuracy: float, first_ms: float) -> ModelProfile:
        return ModelProfile(name, accuracy, tuple(
            BatchProfile(b, mean_ms=first_ms + b, p95_ms=1.2 * (first_ms + b))
            for b in (1, 2, 4, 8)))
    return ProfileSet("sums", (model("fast", 0.6, 1.0), model("slow", 0.9, 5.0)))


def test_a_profile_is_rescaled_by_model():
    found = rescaled(profile(), {"fast": 2.0, "slow": 1.5})
    assert [model.batches[0].mean_ms for model in found.models] == [4.0, 9.0]
    assert found.models[1].batches[3].p95_ms == pytest.approx(1.5 * 1.2 * 13.0)


def test_options_without_one_profile_are_refused():
    assert profile_option(["--slo-ms", "25", "--profiles", "a.json"]) == 3
    for options in (["--slo-ms", "25"], ["--profiles", "a=b.json"], ["--profiles"]):
        with pytest.raises(InvalidValueError, match="--replan"):
            profile_option(options)


def test_options_are_those_of_the_manifest(tmp_path):
    said = ["ramsis generate --profiles 'a b.json' --load 40 --slo-ms 25 --out set --overwrite",
            "ramsis generate --profiles 'a b.json' --load=50,60 --slo-ms 25 --out=set"]
    (tmp_path / "manifest.json").write_text(json.dumps({"commands": said}))
    assert options_of(str(tmp_path)) == ["--profiles", "a b.json", "--slo-ms", "25"]
    for others in ([*said, "ramsis generate --profiles other.json --load 70 --out set"],
                   ["ramsis scale --out set"], ["ramsis generate --profiles 'a"], [5], []):
        (tmp_path / "manifest.json").write_text(json.dumps({"commands": others}))
        with pytest.raises(InputFileError, match="commands: not the options of one"):
            options_of(str(tmp_path))


PLANNED = ("--slo-ms", "100", "--workers", "1", "--grid", "fixed:20", "--max-queue", "8")


def test_after_a_drift_policies_are_made_for_the_measured_times(tmp_path):
    """Of more arrivals first, whose policy the new times make needless."""
    folder = make(tmp_path, loads=(40.0,), slo_ms=100.0)
    save(profile(), folder / "profile.json")
    events, swapped = list[tuple[str, dict[str, Any]]](), list[Any]()

    async def drifts() -> None:
        server: Any = SimpleNamespace(
            policies=read_policies(folder / "policies"), process=None, max_batch=8, on_drift=[],
            on_batch=[], log=lambda event, **fields: events.append((event, fields)),
            swap=lambda policies, where: swapped.append(policies))
        replanning = Replanning(server, str(folder / "policies"), [
            "--profiles", str(folder / "profile.json"), *PLANNED])
        (report,), (ran,) = server.on_drift, server.on_batch
        report(DriftAlarm(ARRIVALS, 2.0, 10))
        report(DriftAlarm(SERVICE, 3.0, 10))
        for batch in range(200):
            ran("fast" if batch < 10 else "slow", 1, 3.0 * (2.0 if batch < 10 else 6.0))
        async with asyncio.timeout(120.0):
            while not swapped:
                await asyncio.sleep(0.01)
        replanning.close()

    asyncio.run(drifts())
    (_, more), (_, planned) = events
    assert more == {"load_qps": 100.0}
    assert planned["ratio"] == {"fast": pytest.approx(3.0), "slow": pytest.approx(3.0)}
    assert load(planned["profile"]).models[1].batches[0].mean_ms == pytest.approx(18.0)
    assert swapped[0].loads() == (40.0,)


@pytest.mark.slow
def test_slower_service_is_noticed_and_planned_for(tmp_path):
    folder = make(tmp_path, loads=(40.0,))
    save(profile(), folder / "profile.json")
    variants = folder / "summing.py"
    variants.write_text(variants.read_text().replace("(0.004 + 0.001", "(0.074 + 0.001"))
    options = " ".join(("--profiles", str(folder / "profile.json"), *PLANNED))
    with running(folder, "--replan", options) as server:
        for _ in range(300):
            server.infer([[1, 2, 3]])
        assert server.wait_for("drift")["what"] == "service times"
        assert server.wait_for("replanning")["ratio"]["slow"] > 5.0
        assert server.wait_for("policies", seconds=120.0)["loads_qps"] == [40.0]
        assert server.metric("ramsis_drift_alarms_total") >= 1
        assert server.infer([[1, 2, 3]])[0] == 200


LOAD_QPS = 200.0
OPTIONS = ["--slo-ms", "60", "--workers", "1", "--max-queue", "8", "--overhead-ms", "1.5",
           "--dispatch", "central-queue"]
SLEEPING = """
import os, time
import numpy as np

def answer(x, seconds):
    time.sleep(seconds * (1.3 if os.path.exists("LAGGING") else 1.0))
    return {"sum": x.sum(axis=1)}

def fast(x):
    return answer(x, 0.002 + 0.0002 * len(x))

def slow(x):
    return answer(x, 0.008 + 0.002 * len(x))
"""


@pytest.mark.slow
@pytest.mark.skipif("RAMSIS_LONG_TESTS" not in os.environ,
                    reason="takes a minute or more, and a quiet machine; set RAMSIS_LONG_TESTS")
def test_after_replanning_the_promise_holds_again(tmp_path):
    """Batches take 30 % longer from one moment on, at half the capacity."""
    folder = make(tmp_path, loads=(40.0,))  # the variants file; policies are replaced
    (folder / "summing.py").write_text(SLEEPING.replace("LAGGING", str(folder / "lagging")))
    save(ProfileSet("sums", tuple(
        ModelProfile(name, accuracy, tuple(
            BatchProfile(b, mean_ms=first_ms + each_ms * b, p95_ms=first_ms + each_ms * b)
            for b in range(1, 9)))
        for name, accuracy, first_ms, each_ms in (("fast", 0.6, 2.0, 0.2), ("slow", 0.9, 8.0, 2.0))
    )), folder / "profile.json")
    made = ["--profiles", str(folder / "profile.json"), *OPTIONS]
    ramsis = [sys.executable, "-m", "ramsis"]
    subprocess.run([*ramsis, "generate", *made, "--load", str(LOAD_QPS), "--out",
                    str(folder / "policies"), "--overwrite"], check=True, capture_output=True)

    with running(folder, "--replan", "auto") as server:
        def violations(seconds: int, seed: int) -> float:
            done = subprocess.run(
                [*ramsis, "load", f"http://{server.host}:{server.port}", "--model", "sums",
                 "--slo-ms", "60", "--load", str(LOAD_QPS), "--duration-s", str(seconds),
                 "--seed", str(seed), "--json"], check=True, capture_output=True, text=True)
            row: dict[str, Any] = json.loads(done.stdout)["rows"][0]
            assert row["failed"] == 0
            return float(row["violation_rate"])

        assert violations(10, 1) <= 0.005
        assert not [one for one in server.events() if one["event"] == "drift"]
        (folder / "lagging").touch()
        violations(30, 2)
        assert server.wait_for("drift", seconds=1.0)["what"] == "service times"
        new = Path(server.wait_for("policies", seconds=60.0)["source"])
        promise = json.loads((new / "manifest.json").read_text())["levels"][0]
        assert violations(20, 3) <= promise["expected_violation_rate"] + 0.005
