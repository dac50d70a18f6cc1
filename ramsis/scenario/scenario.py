"""A scenario: worker types, models, streams of requests, and its duration."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

from ramsis.reprs import dataclass
from ramsis.runtime.records import EMPTY, Positive, Record, stated
from ramsis.scenario.arrays import ScenarioArrays
from ramsis.scenario.records import ScenarioModel, ScenarioWorkerType, StartState, Stream

SCENARIO_FORMAT = "ramsis.scenario/1"


@dataclass(frozen=True)
class Scenario(Record):
    """Worker types, models that are loaded and unloaded, and streams of requests.

    :func:`ramsis.scenario.scenario_from_document` creates a scenario and checks its consistency:
    names are unique and exist, each model fits a worker type that runs it, the start state fits,
    and there is a share for each copy of a model.
    """

    FORMAT: ClassVar[str] = SCENARIO_FORMAT

    name: str
    duration_s: Annotated[Positive, "When requests stop to come; what was begun is finished."]
    worker_types: tuple[ScenarioWorkerType, ...]
    models: tuple[ScenarioModel, ...]
    streams: tuple[Stream, ...]
    start: Annotated[tuple[StartState, ...], EMPTY, "What is loaded at the start."] = ()

    @property
    def duration_ms(self) -> float:
        """Time after which no request arrives."""
        return 1000.0 * self.duration_s

    @cached_property
    def arrays(self) -> ScenarioArrays:
        """The scenario as arrays."""
        return ScenarioArrays.of(self.worker_types, self.models, self.streams, self.start)

    def with_traces(self) -> Scenario:
        """Return the scenario with the contents of the files that its streams name."""
        return replace(self, streams=tuple(
            replace(stream, workload=stream.workload.read()) for stream in self.streams))

    def model_names(self) -> tuple[str, ...]:
        """Return the name of each model, copies one by one."""
        return tuple(name for model in self.models for name in model.instance_names())

    def to_document(self) -> dict[str, Any]:
        """Return the JSON document of a scenario file."""
        return {"format": SCENARIO_FORMAT, **stated(self)}
