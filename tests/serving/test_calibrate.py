"""Calibration measures what the models take through the server, and what dispatch takes."""

import json
import os
import subprocess

import pytest

from ramsis.profiles import load
from tests.serving.servers import ROOT, command, make

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)


@pytest.mark.slow
def test_a_profile_is_measured_through_the_server(tmp_path):
    folder = make(tmp_path, loads=(20.0,))
    out = folder / "mine.json"
    ran = subprocess.run(
        command(folder, "--calibrate", str(out), "--calibrate-seconds", "2"),
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ran.returncode == 0, ran.stderr
    assert "ramsis generate --profiles" in ran.stdout
    found = load(str(out))
    assert [(model.name, model.accuracy) for model in found.models] == [
        ("fast", 0.6), ("slow", 0.9)]
    fast, slow = found.models
    counts = [batch.n for model in found.models for batch in model.batches]
    assert max(counts) == min(counts) >= 1
    for quick, long in zip(fast.batches, slow.batches, strict=True):
        assert quick.min_ms is not None
        assert long.min_ms is not None
        assert long.min_ms > 4.0 + long.batch  # what it sleeps
        assert quick.min_ms < long.min_ms
    overhead = found.measurement["overhead_ms"]
    assert 0 < overhead["p50"] <= overhead["p95"] <= overhead["p99"]


@pytest.mark.slow
def test_policies_that_wait_for_company_do_not_hold_the_calibration(tmp_path):
    """A central queue holds one request for as long as its class allows, here for two seconds."""
    folder = make(tmp_path, loads=(300.0,), slo_ms=2_000.0, dispatch="central-queue")
    table = json.loads(next(folder.glob("policies/*qps*.json")).read_text())["table"]
    waits = [row for row in table["rows"] if row[-1] == -1]
    assert waits, "the policy does not wait, and this test says nothing"
    ran = subprocess.run(
        command(folder, "--calibrate", str(folder / "mine.json"), "--calibrate-seconds", "1"),
        capture_output=True, text=True, check=False, timeout=300.0,
        env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert ran.returncode == 0, ran.stderr
    assert load(str(folder / "mine.json")).measurement["overhead_ms"]["p50"] < 500.0
