"""Service times that drift are reported, measured, and policies made anew with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet, load, save
from tests.serving.servers import make, running

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.errors import InvalidValueError  # noqa: E402
from ramsis.serving.replanning import profile_option, rescaled  # noqa: E402


def profile() -> ProfileSet:
    def model(name: str, accuracy: float, first_ms: float) -> ModelProfile:
        return ModelProfile(name, accuracy, tuple(
            BatchProfile(b, mean_ms=first_ms + b, p95_ms=1.2 * (first_ms + b))
            for b in (1, 2, 4, 8)))
    return ProfileSet("sums", (model("fast", 0.6, 1.0), model("slow", 0.9, 5.0)))


def test_a_profile_is_rescaled_by_model() -> None:
    found = rescaled(profile(), {"fast": 2.0, "slow": 1.5})
    assert [model.batches[0].mean_ms for model in found.models] == [4.0, 9.0]
    assert found.models[1].batches[3].p95_ms == pytest.approx(1.5 * 1.2 * 13.0)


def test_options_without_one_profile_are_refused() -> None:
    assert profile_option(["--slo-ms", "25", "--profiles", "a.json"]) == 3
    for options in (["--slo-ms", "25"], ["--profiles", "a=b.json"], ["--profiles"]):
        with pytest.raises(InvalidValueError, match="--replan"):
            profile_option(options)


def test_slower_service_is_noticed_and_planned_for(tmp_path: Path) -> None:
    folder = make(tmp_path, loads=(40.0,))
    save(profile(), folder / "profile.json")
    variants = folder / "summing.py"
    variants.write_text(variants.read_text().replace("LAGGING", str(folder / "lagging")))
    options = (f"--profiles {folder / 'profile.json'} --slo-ms 100 --workers 1 --grid fixed:20 "
               "--max-queue 8")
    with running(folder, "--replan", options) as server:
        for _ in range(120):
            server.infer([[1, 2, 3]])
        assert not [one for one in server.events() if one["event"] == "drift"]
        (folder / "lagging").touch()
        for _ in range(330):
            server.infer([[1, 2, 3]])
        assert server.wait_for("drift")["what"] == "service times"
        planned = server.wait_for("replanning")
        assert planned["ratio"]["slow"] > 1.5
        assert load(planned["profile"]).models[1].batches[0].mean_ms == pytest.approx(
            6.0 * planned["ratio"]["slow"])
        assert server.wait_for("policies", seconds=60.0)["loads_qps"] == [40.0]
        assert server.metric("ramsis_drift_alarms_total") == 1
        assert server.infer([[1, 2, 3]])[0] == 200
