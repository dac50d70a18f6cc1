"""Policies made anew while serving, when the load or the service times have drifted.

Arrivals above the highest level ask for a policy at more than that load. Service times that have
drifted are measured for a while: each variant's ratio to the profile, as the mean over its
batches; of a variant that has hardly run, that of all. The profile with every variant's times
multiplied so is what the new set is made from, for the same loads.
:class:`~ramsis.runtime.replan.Replanner` does the work in a process of low priority.
"""

from __future__ import annotations

import asyncio
import math
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ramsis.audit.drift import SERVICE, DriftAlarm
from ramsis.errors import InputFileError, InvalidValueError, RamsisError
from ramsis.files import read_json
from ramsis.profiles import BatchProfile, ProfileSet, load, save
from ramsis.runtime.manifest import manifest_path
from ramsis.runtime.policy_set import PolicySet
from ramsis.runtime.replan import GENERATE, Replanner
from ramsis.runtime.selector import Selector
from ramsis.serving.policies import read_policies
from ramsis.serving.server import Server

_PROFILES = "--profiles"
_BATCHES, _OF_VARIANT = 200, 20
_HEADROOM = 1.25
_TIMES = ("mean_ms", "std_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")


def options_of(policies: str) -> list[str]:
    """Options with which ``ramsis generate`` made a folder, without those of loads and folder."""
    path = manifest_path(policies)
    said = read_json(path).get("commands")
    made = {tuple(_without_loads(words[2:]))
            for words in map(_words, said if isinstance(said, list) else ())
            if words[1:2] == ["generate"]}  # again for each load that was added later
    if len(made) != 1:
        raise InputFileError("not the options of one ramsis generate", where=f"{path}: commands",
                             value=said, allowed='--replan "--profiles FILE …"')
    return list(made.pop())


def _words(command: Any) -> list[str]:
    """Of a command; none of what is not one."""
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return []


def _without_loads(words: Sequence[str]) -> Iterator[str]:
    rest = iter(words)
    for word in rest:
        if word in ("--load", "--out"):
            next(rest, None)
        elif not word.startswith(("--load=", "--out=", "--overwrite")):
            yield word


def profile_option(options: Sequence[str]) -> int:
    """Where the profile stands among the options of ``ramsis generate``."""
    if _PROFILES not in options[:-1]:
        raise InvalidValueError("no profile among the options", where="--replan",
                                value=" ".join(options), allowed=f"{_PROFILES} FILE …")
    place = options.index(_PROFILES) + 1
    if "=" in options[place]:
        raise InvalidValueError("replanning knows one worker type", where="--replan",
                                value=options[place], allowed=f"{_PROFILES} FILE")
    return place


def rescaled(profile: ProfileSet, ratio: Mapping[str, float]) -> ProfileSet:
    """A profile with each model's times multiplied."""
    def batch(one: BatchProfile, by: float) -> BatchProfile:
        changed: dict[str, Any] = {name: getattr(one, name) * by for name in _TIMES
                                   if getattr(one, name) is not None}
        if one.quantiles_ms is not None:
            changed["quantiles_ms"] = tuple(value * by for value in one.quantiles_ms)
        return replace(one, **changed)

    models = tuple(replace(model, batches=tuple(batch(one, ratio[model.name])
                                                for one in model.batches))
                   for model in profile.models)
    return replace(profile, models=models, measurement={
        **profile.measurement, "rescaled": {name: round(by, 4) for name, by in ratio.items()}})


class Replanning:
    """Has policies made for a server that drifts.

    Parameters
    ----------
    server
        That is started.
    folder
        Of its policies.
    options
        What ``ramsis generate`` made them with, without ``--load`` and ``--out``.
    """

    def __init__(self, server: Server, folder: str, options: Sequence[str]) -> None:
        self._server, self._folder, self._options = server, folder, list(options)
        self._profile = load(options[profile_option(options)])
        largest = max(batch.batch for model in self._profile.models for batch in model.batches)
        table = self._profile.latency_table("mean", max(largest, server.max_batch))
        self._mean_ms = dict(zip(table.models, table.latency_ms.tolist(), strict=True))
        self._ratios: dict[str, list[float]] | None = None
        self._made, self._made_in = 0, folder
        self._ratio_in = self._ratio_served = dict.fromkeys(self._mean_ms, 1.0)
        self._loop = asyncio.get_running_loop()
        low = ("nice", "-n", "10") if shutil.which("nice") else ()
        self._replanner = Replanner(folder, options, on_error=self._failed,
                                    on_change=self._changed, program=(*low, *GENERATE))
        server.profiled_ms = self._profiled_ms
        server.on_drift.append(self._drifted)
        server.on_batch.append(self._ran)

    def close(self) -> None:
        """Stop whatever is being made."""
        self._replanner.close()

    def _profiled_ms(self, variant: str, run_as: int) -> float | None:
        """What a batch takes in the mean by the profile that the policies rest on."""
        mean_ms = self._mean_ms.get(variant)
        return None if mean_ms is None else mean_ms[run_as - 1] * self._ratio_served[variant]

    def _drifted(self, alarm: DriftAlarm) -> None:
        if alarm.what == SERVICE:
            self._ratios = {name: [] for name in self._mean_ms}
        else:
            highest_qps = max(self._server.policies.loads(self._server.process))
            wanted_qps = float(math.ceil(highest_qps * alarm.ratio * _HEADROOM))
            self._server.log("replanning", load_qps=wanted_qps)
            self._replanner.plan_load(wanted_qps)

    def _ran(self, variant: str, run_as: int, service_ms: float) -> None:
        """Note the time of a batch, if service times have drifted."""
        ratios = self._ratios
        if ratios is None or variant not in ratios:
            return
        ratios[variant].append(service_ms / self._mean_ms[variant][run_as - 1])
        if sum(map(len, ratios.values())) >= _BATCHES:
            self._ratios = None
            self._plan(ratios)

    def _plan(self, ratios: Mapping[str, Sequence[float]]) -> None:
        """Have a set made from the profile as it is now."""
        every = [x for found in ratios.values() for x in found]
        common = sum(every) / len(every)
        ratio = {name: sum(found) / len(found) if len(found) >= _OF_VARIANT else common
                 for name, found in ratios.items()}
        folder = Path()
        while folder.exists():  # what is there stays
            self._made += 1
            folder = Path(f"{Path(self._folder)}-replanned") / str(self._made)
        place = profile_option(self._options)
        file = folder.parent / f"profile-{self._made}.json"
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            save(rescaled(self._profile, ratio), file)
        except (OSError, RamsisError) as error:
            self._server.log("replanning failed", reason=str(error))
            return
        options = [*self._options[:place], str(file), *self._options[place + 1:]]
        loads_qps = list(self._server.policies.loads(self._server.process))
        self._server.log("replanning", profile=str(file), ratio=ratio)
        self._replanner.plan_set(folder, options, loads_qps)
        self._made_in, self._ratio_in = str(folder), ratio

    def _changed(self, policies: PolicySet[Selector]) -> None:
        """In the replanner's thread: a set has been made."""
        self._loop.call_soon_threadsafe(self._serve)

    def _failed(self, error: RamsisError) -> None:
        """In the replanner's thread: none could be made."""
        self._loop.call_soon_threadsafe(
            lambda: self._server.log("replanning failed", reason=str(error)))

    def _serve(self) -> None:
        folder, ratio = self._made_in, self._ratio_in
        try:
            self._server.swap(read_policies(folder), folder)
            self._ratio_served = ratio
        except RamsisError as error:
            self._server.metrics.bad_sets.inc()
            self._server.log("policies refused", source=folder, reason=str(error))
