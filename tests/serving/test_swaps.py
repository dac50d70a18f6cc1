"""Policies are exchanged while requests are served, and sets that break change nothing."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from ramsis.policy import write_set
from ramsis.policy.policy_set import set_of
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.serving.servers import make, profile, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)


def write(folder: Path, *loads: float, workers: int = 1) -> None:
    chosen = SynthesisSettings(slo_ms=100.0, grid="fixed:20", max_queue=8, workers=workers,
                               late="drop", headroom=0.0)
    write_set(folder, set_of([generate_policy(profile(), load, chosen) for load in loads]),
              created_by="tests")


def test_new_sets_are_taken_over_and_broken_ones_are_not(tmp_path):
    folder = make(tmp_path)
    with running(folder) as server:
        stop, statuses = threading.Event(), set[int]()

        def ask() -> None:
            while not stop.is_set():
                statuses.add(server.infer([[1, 2, 3]])[0])

        client = threading.Thread(target=ask)
        client.start()
        write(folder / "policies", 30.0, 300.0)
        assert server.wait_for("policies")["loads_qps"] == [30.0, 300.0]
        manifest = folder / "policies" / "manifest.json"
        good = manifest.read_text()
        manifest.write_text(good[:-20])
        assert "manifest.json" in server.wait_for("policies refused")["reason"]
        shutil.rmtree(folder / "policies")
        server.wait_for("policies refused", 2)
        write(folder / "policies", 30.0, workers=2)
        assert "other workers" in server.wait_for("policies refused", 3)["reason"]
        assert server.metric("ramsis_policy_errors_total") == 3
        write(folder / "policies", 40.0)
        assert server.wait_for("policies", 2)["loads_qps"] == [40.0]
        time.sleep(0.1)
        stop.set()
        client.join()
        assert statuses <= {200, 503}
        assert 200 in {server.infer([[1, 2, 3]])[0] for _ in range(20)}
        assert server.metric("ramsis_policy_swaps_total") == 2
