"""Replanning while serving, after a drift of the load or of the service times.

For arrivals above the highest level, a policy for more than this load is made. After a drift of
service times, the ratio of each variant's times to the profile is measured: the mean over its
batches, or over all batches for a rarely used variant. The new set is made for the same loads from
the profile with each variant's times multiplied by its ratio.
:class:`~ramsis.runtime.replan.Replanner` does this in a process of low priority.

The manifest of a set is written last, so a changed manifest means a complete new set. If the set
cannot be read, or does not fit the variants and workers, this is reported, and the current set
kept.
"""

from __future__ import annotations

import asyncio
import math
import os
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
from ramsis.runtime.manifest import MANIFEST_NAME, manifest_path
from ramsis.runtime.policy_set import PolicySet
from ramsis.runtime.replan import GENERATE, Replanner
from ramsis.runtime.selector import Selector
from ramsis.serving.policies import read_policies
from ramsis.serving.server import Server

_INTERVAL_S = 1.0  # interval of checks

_PROFILES = "--profiles"
# Number of batches measured after a drift, and least number of a variant's batches for its own
# ratio: more are more accurate, fewer lead to the right policies sooner.
_BATCHES, _OF_VARIANT = 200, 20
# Load of the new level as a multiple of the observed load, which may still rise while the policy
# is made; a larger multiple would lower the accuracy.
_HEADROOM = 1.25
_TIMES = ("mean_ms", "std_ms", "min_ms", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")


def options_of(policies: str) -> list[str]:
    """Return the ``ramsis generate`` options that made a folder, without ``--load``, ``--out``."""
    path = manifest_path(policies)
    commands = read_json(path).get("commands")
    option_lists = {tuple(_without_loads(words[2:]))
                    for words in map(_words, commands if isinstance(commands, list) else ())
                    if words[1:2] == ["generate"]}  # repeated for each load that was added later
    if len(option_lists) != 1:
        raise InputFileError("not the options of one ramsis generate", where=f"{path}: commands",
                             value=commands, allowed='--replan "--profiles FILE …"')
    return list(option_lists.pop())


def _words(command: Any) -> list[str]:
    """Split a command into words; return an empty list if it is not a command."""
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return []


def _without_loads(words: Sequence[str]) -> Iterator[str]:
    remaining = iter(words)
    for word in remaining:
        if word in ("--load", "--out"):
            next(remaining, None)
        elif not word.startswith(("--load=", "--out=", "--overwrite")):
            yield word


def profile_option(options: Sequence[str]) -> int:
    """Return the index of the profile among the options of ``ramsis generate``."""
    if _PROFILES not in options[:-1]:
        raise InvalidValueError("no profile among the options", where="--replan",
                                value=" ".join(options), allowed=f"{_PROFILES} FILE …")
    index = options.index(_PROFILES) + 1
    if "=" in options[index]:
        raise InvalidValueError("replanning knows one worker type", where="--replan",
                                value=options[index], allowed=f"{_PROFILES} FILE")
    return index


def rescaled(profile: ProfileSet, ratio: Mapping[str, float]) -> ProfileSet:
    """Return a profile with each model's times multiplied by a ratio."""
    def batch(measured: BatchProfile, ratio_of: float) -> BatchProfile:
        changed: dict[str, Any] = {name: getattr(measured, name) * ratio_of for name in _TIMES
                                   if getattr(measured, name) is not None}
        if measured.quantiles_ms is not None:
            changed["quantiles_ms"] = tuple(value * ratio_of for value in measured.quantiles_ms)
        return replace(measured, **changed)

    models = tuple(replace(model, batches=tuple(batch(item, ratio[model.name])
                                                for item in model.batches))
                   for model in profile.models)
    return replace(profile, models=models, measurement={
        **profile.measurement, "rescaled": {name: round(by, 4) for name, by in ratio.items()}})


class Replanning:
    """Automatic replanning for a started server, after drifts of load or service times.

    ``folder`` has its policies, and ``options`` are those of ``ramsis generate`` that made them,
    without ``--load`` and ``--out``.
    """

    def __init__(self, server: Server, folder: str, options: Sequence[str]) -> None:
        self._server, self._folder, self._options = server, folder, list(options)
        self._profile = load(options[profile_option(options)])
        largest = max(batch.batch for model in self._profile.models for batch in model.batches)
        table = self._profile.latency_table("mean", max(largest, server.max_batch))
        self._mean_ms = dict(zip(table.models, table.latency_ms.tolist(), strict=True))
        self._ratios: dict[str, list[float]] | None = None
        self._count, self._new_folder = 0, folder
        self._new_ratio = self._ratio_served = dict.fromkeys(self._mean_ms, 1.0)
        self._loop = asyncio.get_running_loop()
        low = ("nice", "-n", "10") if shutil.which("nice") else ()
        self._replanner = Replanner(folder, options, on_error=self._failed,
                                    on_change=self._changed, program=(*low, *GENERATE))
        server.profiled_ms = self._profiled_ms
        server.on_drift.append(self._drifted)
        server.on_batch.append(self._ran)

    def close(self) -> None:
        """Stop replanning and the process that makes policies."""
        self._replanner.close()

    def _profiled_ms(self, variant: str, run_as: int) -> float | None:
        """Return the mean time of a batch in the profile of the current policies."""
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
        """Record the time of a batch, if service times have drifted."""
        ratios = self._ratios
        if ratios is None or variant not in ratios:
            return
        ratios[variant].append(service_ms / self._mean_ms[variant][run_as - 1])
        if sum(map(len, ratios.values())) >= _BATCHES:
            self._ratios = None
            self._plan(ratios)

    def _plan(self, ratios: Mapping[str, Sequence[float]]) -> None:
        """Request a new policy set for the profile with times multiplied by the mean ratios."""
        every = [ratio for ratios_of in ratios.values() for ratio in ratios_of]
        common = sum(every) / len(every)
        mean_ratios = {name: sum(x) / len(x) if len(x) >= _OF_VARIANT else common
                       for name, x in ratios.items()}
        folder = Path()
        while folder.exists():  # never overwrite a folder
            self._count += 1
            folder = Path(f"{Path(self._folder)}-replanned") / str(self._count)
        place = profile_option(self._options)
        file = folder.parent / f"profile-{self._count}.json"
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            save(rescaled(self._profile, mean_ratios), file)
        except (OSError, RamsisError) as error:
            self._server.log("replanning failed", reason=str(error))
            return
        options = [*self._options[:place], str(file), *self._options[place + 1:]]
        loads_qps = list(self._server.policies.loads(self._server.process))
        self._server.log("replanning", profile=str(file), ratio=mean_ratios)
        self._replanner.plan_set(folder, options, loads_qps)
        self._new_folder, self._new_ratio = str(folder), mean_ratios

    def _changed(self, policies: PolicySet[Selector]) -> None:
        """Schedule the exchange of policies; called in the replanner's thread."""
        self._loop.call_soon_threadsafe(self._serve)

    def _failed(self, error: RamsisError) -> None:
        """Log a failure to make a set; called in the replanner's thread."""
        self._loop.call_soon_threadsafe(
            lambda: self._server.log("replanning failed", reason=str(error)))

    def _serve(self) -> None:
        folder, served = self._new_folder, self._ratio_served
        try:
            policies = read_policies(folder)
            self._ratio_served = self._new_ratio  # the server asks for it while it swaps
            self._server.swap(policies, folder)
        except RamsisError as error:
            self._ratio_served = served
            self._server.metrics.bad_sets.inc()
            self._server.log("policies refused", source=folder, reason=str(error))


def _state(path: Path) -> tuple[int, ...] | None:
    """Return values that change when a file is written; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


async def watch_policies(server: Server, path: str) -> None:
    """Serve by each new policy set that is written to a path, until cancelled.

    The path is a folder with a manifest, or a policy file, and the server has what is there now.
    """
    file = Path(path) / MANIFEST_NAME if Path(path).is_dir() else Path(path)
    before = _state(file)
    while True:
        await asyncio.sleep(_INTERVAL_S)
        now = _state(file)
        if now == before:
            continue
        # A refused set is read again only after another change.
        before = now
        try:
            policies = await asyncio.get_running_loop().run_in_executor(None, read_policies, path)
            server.swap(policies, path)
        except RamsisError as error:
            server.metrics.bad_sets.inc()
            server.log("policies refused", source=path, reason=str(error))
