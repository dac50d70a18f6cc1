"""Scenario documents for tests."""

from typing import Any

from ramsis.scenario import Scenario, scenario_from_document
from ramsis.sim import Engine, Run, scheduler


def document(**changes: Any) -> dict[str, Any]:
    """Two copies of a model on one worker, all loaded."""
    return {
        "format": "ramsis.scenario/1", "name": "sample", "duration_s": 1,
        "worker_types": [{"name": "gpu", "count": 1, "memory_mb": 1000}],
        "models": [model()],
        "streams": [stream()],
        "start": [{"worker": "gpu", "models": ["m"]}],
        **changes,
    }


def model(name: str = "m", latency_ms: float = 10.0, **more: Any) -> dict[str, Any]:
    return {"name": name, "memory_mb": 100, "load_ms": 50,
            "latency": [{"worker_type": "gpu", "batch": 1, "latency_ms": latency_ms}], **more}


def stream(name: str = "s", model: str = "m", **more: Any) -> dict[str, Any]:
    return {"name": name, "model": model, "slo_ms": 100, "workload": {"load_qps": 20}, **more}


def scenario(**changes: Any) -> Scenario:
    return scenario_from_document(document(**changes))


def served(made: Scenario, name: str, seed: int = 0) -> Run:
    """A run of a scenario by the scheduler of a name."""
    return Engine.of_scenario(made, seed).serve(scheduler(name))
