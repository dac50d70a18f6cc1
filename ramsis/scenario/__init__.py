"""Scenarios: worker types, models that are loaded and unloaded, and streams of requests.

>>> scenario = scenario_from_document({
...     "format": "ramsis.scenario/1", "name": "two models", "duration_s": 1,
...     "worker_types": [{"name": "gpu", "count": 1, "memory_mb": 1000}],
...     "models": [{"name": "a", "copies": 2, "memory_mb": 600, "load_ms": 50,
...                 "latency": [{"worker_type": "gpu", "batch": 1, "latency_ms": 5}]}],
...     "streams": [{"name": "users", "model": "a", "slo_ms": 100,
...                  "workload": {"load_qps": 20}}],
... })
>>> scenario.arrays.models
('a-1', 'a-2')
>>> len(draw_requests(scenario, seed=0))
15

May import: arrivals.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from
from ramsis.scenario.reading import read_scenario, scenario_from_document, schema, write_scenario
from ramsis.scenario.records import (
    BatchTime,
    Inference,
    LoadTime,
    ScenarioModel,
    ScenarioWorkerType,
    StartState,
    Stream,
)
from ramsis.scenario.scenario import (
    SCENARIO_FORMAT,
    Requests,
    Scenario,
    ScenarioArrays,
    draw_requests,
)
from ramsis.scenario.workloads import (
    ClosedLoopOf,
    Drawn,
    FunctionTrace,
    LoadOf,
    MinuteBins,
    RecordedFile,
    TimesOf,
    WorkloadOf,
)

__all__ = ["SCENARIO_FORMAT", "BatchTime", "ClosedLoopOf", "Drawn", "FunctionTrace", "Inference",
           "LoadOf", "LoadTime", "MinuteBins", "RecordedFile", "Requests", "Scenario",
           "ScenarioArrays", "ScenarioModel", "ScenarioWorkerType", "StartState", "Stream",
           "TimesOf", "WorkloadOf", "draw_requests", "read_scenario", "scenario_from_document",
           "schema", "write_scenario"]

__getattr__, __dir__ = names_from(globals())
