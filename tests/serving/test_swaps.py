"""Policies are exchanged while requests are served, and sets that break change nothing."""

import shutil
from pathlib import Path

import pytest

from ramsis.policy import write_set
from ramsis.policy.policy_set import set_of
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.serving.servers import Load, make, profile, running, until

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)


def write(folder: Path, *loads: float, workers: int = 1) -> None:
    chosen = SynthesisSettings(slo_ms=100.0, grid="fixed:20", max_queue=8, workers=workers,
                               late="drop", headroom=0.0)
    write_set(folder, set_of([generate_policy(profile(), load, chosen) for load in loads]),
              created_by="tests")


def test_new_sets_are_taken_over_and_broken_ones_are_not(tmp_path):
    folder = make(tmp_path)
    with running(folder) as server, Load(server, 1, 0.0) as load:
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
        answered = load.answered[200]
        until(lambda: load.answered[200] > answered)
        assert set(load.answered) <= {200, 503}
        assert server.metric("ramsis_policy_swaps_total") == 2
