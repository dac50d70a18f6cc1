"""The work of a sweep: jobs that each make one file of the output folder.

A job's file is named by the fingerprint of all that the result depends on, and is written whole
or not at all, so a file that is there need never be made again. Policies and the offline profile
of ModelSwitching are jobs of their own, since many cells use the same one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from ramsis import __version__
from ramsis.bounds import realised_bound
from ramsis.cluster.service_times import ServiceTimes
from ramsis.errors import InputFileError
from ramsis.files import canonical_json, fingerprint, read_json, write_atomic
from ramsis.policy import Policy, read, write
from ramsis.profiles import ProfileSet
from ramsis.profiles.file import to_document
from ramsis.sim import (
    ConstantLoad,
    Fleet,
    ModelSwitching,
    Policies,
    RateTrace,
    SchemeSpec,
    SimulationResult,
    Workload,
    simulate_profile,
)
from ramsis.sim.fleet import MAX_BATCH
from ramsis.sweep.schemes import scheme_document, settings_document
from ramsis.sweep.spec import Cell
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.schemes import PolicyScheme, policy_scheme

__all__ = ["CELL_FORMAT", "CellJob", "Job", "Models", "PolicyJob", "ResponseJob"]

CELL_FORMAT = "ramsis.sweep-cell/2"
"""The ``format`` field of a cell's file; a new number where the same inputs give new results."""

_CODE = f"{CELL_FORMAT} {__version__}"
_PROMISES = ("accuracy", "violation_rate", "effective_accuracy", "upper_bound")


class Job(Protocol):
    """Something to make once."""

    @property
    def path(self) -> Path:
        """The file that it makes."""
        ...

    def run(self) -> object:
        """Make it."""
        ...


@dataclass(frozen=True)
class Models:
    """A set of models, with its fingerprint."""

    profile: ProfileSet
    digest: str

    @classmethod
    def of(cls, profile: ProfileSet) -> Models:
        """With the fingerprint worked out."""
        return cls(profile, fingerprint(to_document(profile)))


@dataclass(frozen=True)
class PolicyJob:
    """One policy."""

    folder: Path
    models: Models
    load_qps: float
    settings: SynthesisSettings

    @cached_property
    def path(self) -> Path:
        """Of the policy file."""
        return self.folder / "policies" / _file({
            "code": __version__, "profile": self.models.digest, "load_qps": self.load_qps,
            "settings": settings_document(self.settings),
        })

    def run(self) -> Policy:
        """Make the policy, unless its file is there and whole."""
        try:
            return read(self.path)
        except InputFileError:
            pass
        policy = generate_policy(self.models.profile, self.load_qps, self.settings)
        write(policy, self.path)
        return policy


@dataclass(frozen=True)
class ResponseJob:
    """The offline profile of ModelSwitching for a fleet."""

    folder: Path
    models: Models
    cell: Cell
    scheme: ModelSwitching

    @cached_property
    def path(self) -> Path:
        """Of the response profile."""
        return self.folder / "responses" / _file({
            "code": _CODE, "profile": self.models.digest, "workers": self.cell.workers,
            "slo_ms": self.cell.slo_ms, "service": self.cell.service,
            "network_ms": self.cell.network_ms, "scheme": scheme_document(self.scheme),
        })

    @property
    def stored(self) -> ModelSwitching:
        """The scheme, reading what this job makes."""
        return replace(self.scheme, store=str(self.path))

    def run(self) -> None:
        """Profile the models."""
        self.stored.prepare(_fleet(self.models.profile, self.cell))


@dataclass(frozen=True)
class CellJob:
    """One scheme on one workload."""

    folder: Path
    cell: Cell
    models: Models
    trace: RateTrace | None

    @cached_property
    def path(self) -> Path:
        """Of the cell's result."""
        return self.folder / "cells" / _file(self.inputs)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """All that the result depends on."""
        cell, trace = self.cell, self.trace
        load: dict[str, Any] = {"load_qps": cell.load_qps}
        if trace is not None:
            load = {"start_ms": trace.start_ms.tolist(), "rate_qps": trace.rate_qps.tolist(),
                    "end_ms": trace.end_ms}
        spec = self._scheme
        scheme = ({"name": spec.name, "settings": settings_document(self._settings),
                   "loads": list(self._loads)}
                  if isinstance(spec, PolicyScheme) else scheme_document(spec))
        return {
            "code": _CODE, "profile": self.models.digest, "workers": cell.workers,
            "slo_ms": cell.slo_ms, "service": cell.service, "network_ms": cell.network_ms,
            "workload": {**load, "arrivals": cell.arrivals, "duration_s": cell.duration_s},
            "monitor": cell.monitor, "monitor_ms": cell.monitor_ms, "told": cell.told,
            "seed": cell.seed, "seeds": cell.seeds, "scheme": scheme,
        }

    @cached_property
    def needs(self) -> tuple[PolicyJob | ResponseJob, ...]:
        """Jobs whose files it reads."""
        spec = self._scheme
        if isinstance(spec, PolicyScheme):
            return tuple(PolicyJob(self.folder, self.models, load, self._settings)
                         for load in self._loads)
        if isinstance(spec, ModelSwitching) and not spec.store:
            return (ResponseJob(self.folder, self.models, self.cell, spec),)
        return ()

    def result(self) -> dict[str, Any] | None:
        """What the cell's file holds; ``None`` if there is no whole file of these inputs."""
        try:
            document = read_json(self.path)
        except InputFileError:
            return None
        good = document.get("format") == CELL_FORMAT and document.get("inputs") == self.inputs
        return document if good else None

    def run(self) -> None:
        """Simulate, and write what came of it."""
        policies = tuple(need.run() for need in self.needs if isinstance(need, PolicyJob))
        spec: SchemeSpec = self._ready(policies)
        result = None
        if self.cell.duration_s != 0:
            result = self._simulate(spec)
        max_batch = max(MAX_BATCH, getattr(spec, "max_batch", 1))
        document = {
            "format": CELL_FORMAT,
            "inputs": self.inputs,
            "models": list(self.models.profile.latency_table("p95", 1).models),
            "promise": self._promise(policies, result),
            "result": None if result is None else result.row(),
            "upper_bound": None if result is None else self._bound(result, max_batch),
            "seeds": [] if result is None else [asdict(one) for one in result.metrics],
        }
        write_atomic(self.path, canonical_json(document))

    @cached_property
    def _scheme(self) -> PolicyScheme | SchemeSpec:
        return policy_scheme(self.cell.scheme)

    @cached_property
    def _settings(self) -> SynthesisSettings:
        return cast(PolicyScheme, self._scheme).settings(
            slo_ms=self.cell.slo_ms, workers=self.cell.workers, service=self.cell.service)

    @cached_property
    def _loads(self) -> tuple[float, ...]:
        if self.trace is None:
            told = 1.0 if self.cell.monitor else self.cell.told
            return (told * cast(float, self.cell.load_qps),)
        return cast(PolicyScheme, self._scheme).loads(self.trace)

    def _ready(self, policies: tuple[Policy, ...]) -> SchemeSpec:
        """The scheme, with the files that it needs."""
        if policies:
            return Policies(policies, self.cell.scheme)
        first = next(iter(self.needs), None)
        return first.stored if isinstance(first, ResponseJob) else cast(SchemeSpec, self._scheme)

    def _simulate(self, spec: SchemeSpec) -> SimulationResult:
        cell = self.cell
        return simulate_profile(
            self.models.profile, spec, self._workload(), workers=cell.workers,
            slo_ms=cell.slo_ms, service=cell.service, network_ms=cell.network_ms,
            seeds=range(cell.seed, cell.seed + cell.seeds), monitor=cell.monitor,
            monitor_ms=cell.monitor_ms, stated_load=cell.told,
        )

    def _workload(self) -> Workload:
        if self.trace is not None:
            return self.trace
        load_qps, duration_ms = cast(float, self.cell.load_qps), 1000.0 * self._seconds
        return ConstantLoad(load_qps, duration_ms, self.cell.arrivals)

    @property
    def _seconds(self) -> float:
        return cast(float, self.cell.duration_s)

    def _promise(
        self, policies: tuple[Policy, ...], result: SimulationResult | None
    ) -> dict[str, float | None]:
        """What the policy for a constant load expects, where it is told that load."""
        known = result is None or result.told_qps == self.cell.load_qps
        if self.trace is not None or not policies or not known:
            return dict.fromkeys(_PROMISES)
        return {name: getattr(policies[0].expectations, name) for name in _PROMISES}

    def _bound(self, result: SimulationResult, max_batch: int) -> float | None:
        """What no scheme can beat on these arrivals, in expectation where times are drawn."""
        cell = self.cell
        law = ServiceTimes.of(self.models.profile, cell.service, max_batch)
        return realised_bound(
            law, slo_ms=cell.slo_ms, workers=cell.workers, max_batch=max_batch,
            duration_ms=result.duration_ms, counts=[one.queries for one in result.metrics],
        )


def _fleet(profile: ProfileSet, cell: Cell) -> Fleet:
    return Fleet.of(profile, workers=cell.workers, slo_ms=cell.slo_ms, service=cell.service,
                    network_ms=cell.network_ms)


def _file(inputs: dict[str, Any]) -> str:
    return f"{fingerprint(inputs).partition(':')[2][:32]}.json"
