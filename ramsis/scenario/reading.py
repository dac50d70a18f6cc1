"""Scenario files, JSON or TOML: reading, writing, and checks across their records."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from math import inf
from typing import Any

from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_document, write_atomic
from ramsis.scenario.records import ScenarioModel
from ramsis.scenario.scenario import Scenario

_MOST_NAMES = 10  # that a message lists
_MOST = 1_000_000  # workers, and models
_MOST_TIMES = 100_000_000  # of all batches, and of all loads


def check_consistency(scenario: Scenario, where: str) -> None:
    """Refuse references to missing records, and impossible values."""
    check = _Check(where)
    _check_sizes(check, scenario)
    check.once("worker_types", [name for worker_type in scenario.worker_types
                                for name in (worker_type.name, *worker_type.worker_names())])
    check.once("models", [name for model in scenario.models for name in
                          {model.name: 0, **dict.fromkeys(model.instance_names())}])
    check.once("streams", [stream.name for stream in scenario.streams])
    for i, model in enumerate(scenario.models):
        _check_model(check, f"models[{i}]", model, scenario)
    _check_streams(check, scenario)
    _check_start(check, scenario)


def _check_sizes(check: _Check, scenario: Scenario) -> None:
    """Refuse sizes that would exhaust the memory, before any other check."""
    types, models = scenario.worker_types, scenario.models
    for place, what, count in (
            ("worker_types", "workers", sum(worker_type.count for worker_type in types)),
            ("models", "models, each copy counted", sum(model.copies for model in models))):
        if count > _MOST:
            raise check.refusal(place, f"too many {what}", value=count, allowed=f"at most {_MOST}")
    largest = max(entry.batch for model in models for entry in model.latency)
    width = max(len(entry.quantiles_ms) or 1 for model in models for entry in model.latency)
    times = len(types) * max(len(models) * largest * width, sum(model.copies for model in models))
    if times > _MOST_TIMES:
        raise check.refusal(
            "models", "too many times", value=times, allowed=f"at most {_MOST_TIMES}, for worker "
            f"types x models x the largest batch ({largest}) x quantiles ({width})")


class _Check:
    """Checks of a scenario file, whose errors name the file."""

    def __init__(self, where: str) -> None:
        self.where = where

    def refusal(self, place: str, what: str, **details: object) -> InputFileError:
        """Return the error about a place of the file, for the caller to raise."""
        return InputFileError(what, where=f"{self.where}: {place}",
                              **details)  # type: ignore[arg-type]

    def once(self, place: str, names: Iterable[str]) -> None:
        """Refuse names that occur twice."""
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise self.refusal(place, "a name stands twice", value=name,
                                   allowed="each name once, those of workers and copies included")
            seen.add(name)

    def known(self, place: str, what: str, name: str, names: Collection[str]) -> None:
        """Refuse a reference to a name that the scenario does not have."""
        if name not in names:
            every = list(names)
            near = get_close_matches(name, every, 3) or every[:_MOST_NAMES]
            raise self.refusal(place, f"unknown {what}", value=name, allowed=", ".join(near))


def _check_model(check: _Check, place: str, model: ScenarioModel, scenario: Scenario) -> None:
    types = {worker_type.name: worker_type for worker_type in scenario.worker_types}
    seen = set()
    for j, latency in enumerate(model.latency):
        check.known(f"{place}.latency[{j}].worker_type", "worker type", latency.worker_type, types)
        case = latency.worker_type, latency.batch
        if case in seen:
            raise check.refusal(f"{place}.latency[{j}]", "stands twice", value=case,
                                allowed="each worker type and batch once")
        seen.add(case)
        if latency.batch > 1 and model.inference.batching == "none":
            raise check.refusal(f"{place}.latency[{j}].batch", "a model without batching",
                                value=latency.batch, allowed="1")
    for j, load in enumerate(model.load):
        check.known(f"{place}.load[{j}].worker_type", "worker type", load.worker_type, types)
    check.once(f"{place}.load", [load.worker_type for load in model.load])
    room = {name: types[name].memory_mb or inf for name, _ in seen}
    if model.memory_mb > max(room.values()):
        raise check.refusal(f"{place}.memory_mb", "the model fits no worker",
                            value=model.memory_mb, allowed="at most " + ", ".join(
                                f"{memory:g} ({name})" for name, memory in room.items()))


def _check_streams(check: _Check, scenario: Scenario) -> None:
    copies = {model.name: model.copies for model in scenario.models}
    names = dict.fromkeys([*copies, *scenario.model_names()])
    streams = {stream.name: stream for stream in scenario.streams}
    most_cores = max(worker_type.cores for worker_type in scenario.worker_types)
    for i, stream in enumerate(scenario.streams):
        check.known(f"streams[{i}].model", "model", stream.model, names)
        wanted = copies.get(stream.model, 1)
        if stream.shares and (len(stream.shares) != wanted or not sum(stream.shares)):
            raise check.refusal(f"streams[{i}].shares", "not a share for each copy",
                                value=stream.shares, allowed=f"{wanted} numbers, not all 0")
        if stream.cores > most_cores:
            raise check.refusal(f"streams[{i}].cores", "more than any machine has",
                                value=stream.cores, allowed=f"at most {most_cores}")
        if stream.after is not None:
            check.known(f"streams[{i}].after", "stream", stream.after, streams)
        chain, before = [stream.name], stream.after
        while before is not None and before in streams:
            chain.append(before)
            if before in chain[:-1]:
                raise check.refusal(f"streams[{i}].after", "streams wait for each other",
                                    value=" after ".join(chain), allowed="no cycle")
            before = streams[before].after


def _check_start(check: _Check, scenario: Scenario) -> None:
    workers = dict.fromkeys(
        name for kind in scenario.worker_types for name in (kind.name, *kind.worker_names()))
    models = dict.fromkeys([*(model.name for model in scenario.models), *scenario.model_names()])
    for i, state in enumerate(scenario.start):
        check.known(f"start[{i}].worker", "worker", state.worker, workers)
        for j, name in enumerate(state.models):
            check.known(f"start[{i}].models[{j}]", "model", name, models)
    arrays = scenario.arrays
    for worker, held in enumerate(arrays.start):
        kind = int(arrays.worker_type[worker])
        name = arrays.workers[worker]
        if held and not arrays.active[worker]:
            raise check.refusal("start", f"worker {name} is not active at the start")
        memory_mb = float(arrays.memory_mb[list(held)].sum())
        if memory_mb > arrays.type_memory_mb[kind] or len(held) > arrays.type_max_models[kind]:
            raise check.refusal(
                "start", f"more models than worker {name} holds",
                value=f"{len(held)} models, {memory_mb:g} MB",
                allowed=f"{arrays.type_max_models[kind]:g} models, "
                f"{arrays.type_memory_mb[kind]:g} MB")
        for model in held:
            if not arrays.batch_sizes[kind][arrays.kind[model]]:
                raise check.refusal("start", f"worker {name} cannot run the model",
                                    value=arrays.models[model])


def schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files."""
    return Scenario.schema()


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario from a ``ramsis.scenario/1`` file; paths of traces are relative to it.

    The file is TOML if its name ends in ``.toml``, else JSON.
    """
    return scenario_from_document(read_document(path), str(path))


def scenario_from_document(document: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """Read a scenario from a parsed file; ``where`` is its name in error messages."""
    scenario = Scenario.from_fields(Fields(document, where))
    check_consistency(scenario, where)
    return scenario


def write_scenario(scenario: Scenario, path: str | os.PathLike[str]) -> None:
    """Write a scenario as JSON, atomically."""
    write_atomic(path, canonical_json(scenario.to_document()))
