"""Policies for requests with a size: the rule, what it promises, and their files.

A folder has one file for each load, and a manifest of another format than that of other policies,
as their tables have nothing in common.

*Gate.* The rule that the search found and the replanned dynamic program serve the same requests,
others than in the search. By default the rule decides. The dynamic program decides (``plan``) if
it misses the shares asked of size classes by less, or by as much and has a higher mean value. The
difference and its 95 % half-width are in the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ramsis import __version__
from ramsis.arrays import FloatArray
from ramsis.arrivals.registry import AnyArrivals, Arrivals, describe_process
from ramsis.arrivals.sizes import SizeDistribution
from ramsis.errors import FRACTION, POSITIVE, InfeasibleError, InputFileError, InvalidValueError
from ramsis.fields import Fields
from ramsis.files import canonical_json, fingerprint, make_folder, read_json, write_atomic
from ramsis.profiles import ProfileError, ProfileSet
from ramsis.profiles.sized import SizedTimes
from ramsis.reprs import dataclass
from ramsis.runtime.sized import (
    SIZED_FORMAT,
    SIZED_MANIFEST_FORMAT,
    SizedPlan,
    SizedTables,
)
from ramsis.sim.result import Estimate
from ramsis.sim.workload import ConstantLoad
from ramsis.sized.bound import upper_bound
from ramsis.sized.problem import SizedProblem
from ramsis.sized.records import SizedFile
from ramsis.sized.rule import IndexRule
from ramsis.sized.schedulers import ReplannedDP, SizedScheduler
from ramsis.sized.search import class_shares, fit_rule, steps
from ramsis.sized.simulate import SizedResult, check_sized_load, simulate_sized

MANIFEST = "manifest.json"
RUNS, REQUESTS = 10, 60_000
"""Simulations that a promise is the mean of, and the requests of each."""
_PROMISE_SEED = 3_000_003  # far from the seeds of searches and simulations
_RESPONSES = ("response_mean_ms", "response_p50_ms", "response_p95_ms", "response_p99_ms")
_FIGURES = ("accuracy", "violation_rate", "violation_rate_half_width", "effective_accuracy",
            "effective_accuracy_half_width", "by_class", *_RESPONSES, "batch_mean", "utilisation",
            "padding", "model_share")
_OVERLOADED = 0.1  # share of late requests, as for other policies
_BOUND = {"stretches": 8, "refined": 2, "requests": 2000}  # about a second each in overload
_RULE = ("law", "edges", "mean_size", "work_us", "level_us", "bins", "reward", "values", "aging",
         "price", "sizes", "times_ms")
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class SizedPolicy:
    """Policy for requests with a size at one load."""

    tables: SizedTables
    document: Mapping[str, Any]  # of its file

    @property
    def load_qps(self) -> float:
        """Load at which the rule was searched for, in requests per second."""
        return float(self.document["load_qps"])

    @property
    def expectations(self) -> Mapping[str, Any]:
        """Promised figures by their names in the file."""
        result: Mapping[str, Any] = self.document["expectations"]
        return result

    @cached_property
    def scheduler(self) -> IndexRule:
        """Scheduler that follows the policy, for simulations."""
        return IndexRule(self.tables)

    @cached_property
    def problem(self) -> SizedProblem:
        """The problem that the policy was made for, by its file."""
        document, inputs = self.document, self.document["inputs"]
        try:
            return SizedProblem.of_times(
                self.tables.models, [model["accuracy"] for model in document["models"]],
                [SizedTimes(**times) for times in inputs["times"]],
                SizeDistribution(**inputs["sizes"]), slo_ms=self.tables.slo_ms,
                workers=self.tables.workers, max_batch=inputs["max_batch"],
                statistic=document["service"], edges=document["classes"]["edges"],
                weights=inputs["weights"])
        except (InfeasibleError, InvalidValueError, ProfileError) as error:
            raise InputFileError(f"no problem: {error}", where="inputs") from error

    def row(self) -> dict[str, Any]:
        """Return the policy's promise as a row of results."""
        expected = self.expectations
        return {"scheduler": "central-queue", "load_qps": self.load_qps,
                "workers": self.tables.workers, "slo_ms": self.tables.slo_ms,
                "dispatch": "central-queue",
                "expected_accuracy": expected["accuracy"],
                "expected_violation_rate": expected["violation_rate"],
                "expected_effective_accuracy": expected["effective_accuracy"],
                "expected_effective_accuracy_half_width":
                    expected["effective_accuracy_half_width"],
                "upper_bound": expected["upper_bound"],
                "upper_bound_half_width": expected["upper_bound_half_width"],
                "certified_gap": certified_gap(self),
                "decides": "replanned-dp" if self.tables.plan else "rule",
                "replanned_dp": expected["replanned_dp"],
                "rule_gain": expected["rule_gain"],
                "rule_gain_half_width": expected["rule_gain_half_width"],
                "padding": expected["padding"],
                "utilisation": expected["utilisation"],
                **{name: expected[name] for name in _RESPONSES},
                "unit": self.document["unit"], "by_class": expected["by_class"],
                "overloaded": expected["overloaded"]}

    def _summary(self) -> str:
        expected = self.expectations
        return (f"{self.load_qps:g} QPS, {self.tables.workers} workers, SLO "
                f"{self.tables.slo_ms:g} ms, {1.0 - expected['violation_rate']:.4f} in time")


def generate_sized(
    problem: SizedProblem, profile: ProfileSet, load_qps: float, *,
    arrivals: AnyArrivals = "poisson",
    min_in_time_by_class: float | Sequence[float] | None = None, seed: int = 0,
    on_progress: Callable[[], object] | None = None,
) -> SizedPolicy:
    """Generate the policy for one load, with its promise; the same seed gives the same policy.

    ``profile`` is the one that the times of the problem come from. A recorded trace that keeps its
    sizes is replayed with them. ``min_in_time_by_class`` is a share of each size class to answer
    in time, or one for each; classes get less if the search finds no rule that reaches these.
    ``on_progress`` is called after each of about :func:`generation_steps` simulations.
    """
    load = _load(load_qps, REQUESTS, arrivals)
    check_sized_load(problem, load)
    shares = class_shares(problem, min_in_time_by_class)
    tell = on_progress or (lambda: None)
    fitted = fit_rule(problem, load, seed=seed, min_in_time_by_class=min_in_time_by_class,
                      on_progress=tell)
    tables = fitted.tables
    plan = ReplannedDP(model=problem.models[fitted.model], max_batch=problem.max_batch)
    ruled, planned = (_simulated(problem, scheduler, load, seed, RUNS, tell)
                      for scheduler in (IndexRule(tables), plan))
    values, plan_values = (_values(result, problem) for result in (ruled, planned))
    gain = Estimate.of([float(value) for value in values - plan_values])
    result = ruled
    # The plan decides if it misses the shares of classes by less, or as much and earns more.
    if (_most_missed(planned, shares), 0.0) > (_most_missed(ruled, shares), gain.mean):
        result, tables = planned, fitted.space.planned(tables, SizedPlan(fitted.model, plan.keep))
    expectations = {
        **_measured(result, problem), **_bounded(problem, load, seed),
        "replanned_dp": float(plan_values.mean()),
        "rule_gain": gain.mean, "rule_gain_half_width": gain.half_width,
        "runs": RUNS, "requests": REQUESTS}
    document = {
        "format": SIZED_FORMAT, "created_by": f"ramsis {__version__}",
        "models": [{"name": name, "accuracy": accuracy} for name, accuracy
                   in zip(problem.models, problem.accuracy.tolist(), strict=True)],
        "unit": problem.unit, "slo_ms": tables.slo_ms, "workers": tables.workers,
        "load_qps": load_qps, "arrivals": describe_process(load.process),
        "service": problem.statistic,
        "classes": {"edges": list(problem.edges), "weights": list(fitted.problem.weights)},
        "rule": {name: getattr(tables, name) for name in _RULE},
        "plan": None if tables.plan is None else {
            "model": problem.models[tables.plan.model], "keep": tables.plan.keep},
        "numbers": fitted.numbers._asdict(), "expectations": expectations,
        "inputs": {"profile": profile.name, "profile_fingerprint": profile.fingerprint,
                   "times": [model.sized.only(problem.statistic).to_document()
                             for model in profile.models if model.sized is not None],
                   "sizes": problem.sizes.to_document(), "weights": list(problem.weights),
                   "max_batch": problem.max_batch, "seed": seed,
                   "min_in_time_by_class": None if shares is None else shares.tolist()}}
    return SizedPolicy(tables, document)


def measured_again(policy: SizedPolicy) -> dict[str, Any]:
    """Return the expectations of a policy, measured and bounded again on the same requests.

    The comparison with the replanned dynamic program is left out.
    """
    problem, expected = policy.problem, policy.expectations
    load = _load(policy.load_qps, expected["requests"], Arrivals.of(policy.document["arrivals"]))
    seed = policy.document["inputs"]["seed"]
    result = _simulated(problem, policy.scheduler, load, seed, expected["runs"])
    return {**_measured(result, problem), **_bounded(problem, load, seed)}


def generation_steps(*, weighted: bool = False) -> int:
    """Estimate the number of simulations that :func:`generate_sized` takes.

    If ``weighted``, a least share in time is asked for each size class, and the rule is searched
    again with weights of the classes.
    """
    return steps(weighted=weighted) + 2 * RUNS


def missed_classes(policy: SizedPolicy) -> list[Mapping[str, Any]]:
    """Return the classes whose promised share in time is below what was asked for."""
    shares = policy.document["inputs"]["min_in_time_by_class"]
    classes = policy.expectations["by_class"]
    return [] if shares is None else [
        entry for entry, share in zip(classes, shares, strict=True)
        if entry["in_time_rate"] is not None
        and entry["in_time_rate"] < share - (entry["in_time_rate_half_width"] or 0.0)]


def certified_gap(policy: SizedPolicy) -> float:
    """Return the largest share by which any scheduler could exceed the policy's promised value."""
    expected = policy.expectations
    most = expected["upper_bound"] + expected["upper_bound_half_width"]
    value = expected["value"]
    return max(0.0, most / value - 1.0) if value > 0.0 else float("inf")


def _load(load_qps: float, requests: int, arrivals: AnyArrivals) -> ConstantLoad:
    """Return a constant load for runs of ``requests`` requests in the mean."""
    duration_ms = 1000.0 * requests / load_qps if load_qps > 0.0 else 1.0
    return ConstantLoad(load_qps, duration_ms, arrivals)


def _simulated(
    problem: SizedProblem, scheduler: SizedScheduler, load: ConstantLoad, seed: int, runs: int,
    on_run: Callable[[], object] = lambda: None,
) -> SizedResult:
    """Simulate a scheduler on the requests by which a promise with this seed is measured."""
    first = _PROMISE_SEED + runs * seed
    return simulate_sized(problem, scheduler, load, seeds=range(first, first + runs),
                          on_run=lambda _: on_run())


def _measured(result: SizedResult, problem: SizedProblem) -> dict[str, Any]:
    """Return the expectations of a policy, measured in simulated runs."""
    row = result.row()
    return {**{name: row[name] for name in _FIGURES},
            "overloaded": row["violation_rate"] > _OVERLOADED,
            "value": float(_values(result, problem).mean())}


def _bounded(problem: SizedProblem, load: ConstantLoad, seed: int) -> dict[str, Any]:
    """Return the bound on the value, with its half-width."""
    bound = upper_bound(problem, load.process, seed=seed, **_BOUND)
    return {"upper_bound": bound.upper_bound, "upper_bound_half_width": bound.half_width}


def _values(result: SizedResult, problem: SizedProblem) -> FloatArray:
    """Return the mean value of a request in each run, with the weights of a problem."""
    earned = sum((weight * np.array([metrics.effective_accuracy * metrics.queries
                                     for metrics in by_class.metrics])
                  for weight, by_class in zip(problem.weights, result.by_class, strict=True)),
                 np.zeros(len(result.total.metrics)))
    value: FloatArray = earned / np.maximum([metrics.queries for metrics in result.total.metrics],
                                            1)
    return value


def _most_missed(result: SizedResult, shares: FloatArray | None) -> float:
    """Return the largest shortfall of a size class's share in time, as a number < 0, or 0.

    Margins within the half-width of a class do not count.
    """
    if shares is None:
        return 0.0
    missed = 0.0
    for by_class, share in zip(result.by_class, shares.tolist(), strict=True):
        late = by_class.estimate("violation_rate")
        if by_class.metrics[0].queries and 1.0 - late.mean < share - (late.half_width or 0.0):
            missed = min(missed, 1.0 - late.mean - share)
    return missed


def policy_file(load_qps: float) -> str:
    """Return the name of the file of a load."""
    digits = f"{load_qps:08.2f}".rstrip("0").rstrip(".") if load_qps % 1 else f"{load_qps:05.0f}"
    return f"sized-{digits}qps.json"


def write_sized(
    policies: Sequence[SizedPolicy], folder: str | os.PathLike[str], command: str
) -> None:
    """Write the files of policies, and last their manifest."""
    folder = Path(folder)
    make_folder(folder)
    levels = []
    for policy in sorted(policies, key=lambda policy: policy.load_qps):
        name, text = policy_file(policy.load_qps), canonical_json(policy.document)
        write_atomic(folder / name, text)
        levels.append({
            "load_qps": policy.load_qps, "file": name, "fingerprint": fingerprint(text),
            "expected_violation_rate": policy.expectations["violation_rate"],
            "expected_effective_accuracy": policy.expectations["effective_accuracy"]})
    write_atomic(folder / MANIFEST, canonical_json({
        "format": SIZED_MANIFEST_FORMAT, "created_by": f"ramsis {__version__}",
        "commands": [command], "levels": levels}))


def check_free(folder: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Refuse a folder that already has a set of policies, unless it may be overwritten."""
    path = Path(folder, MANIFEST)
    if path.is_file() and not overwrite:
        raise InvalidValueError("the folder has policies already", where="--out",
                                value=str(folder), allowed="another folder, or --overwrite")


def is_sized(path: str | os.PathLike[str]) -> bool:
    """Return whether a folder, manifest or file holds policies for requests with a size."""
    path = Path(path)
    path = path / MANIFEST if path.is_dir() else path
    try:
        document = read_json(path)
    except InputFileError:
        return False
    return isinstance(document, dict) and document.get("format") in (
        SIZED_FORMAT, SIZED_MANIFEST_FORMAT)


def read_sized(path: str | os.PathLike[str]) -> list[SizedPolicy]:
    """Read a policy file, or those of a folder or manifest, by rising load.

    A file that has changed since the manifest is refused.
    """
    path = Path(path)
    if path.is_dir():
        path = path / MANIFEST
    document = read_json(path)
    fields = Fields(document, str(path))
    if document.get("format") != SIZED_MANIFEST_FORMAT:
        return [_policy(document, str(path))]
    fields.only(("format", "created_by", "commands", "levels"))
    policies = []
    for entry in fields.children("levels"):
        name = entry.text("file")
        if Path(name).name != name:
            raise entry.refusal("file", "not the name of a file", value=name)
        policy = _policy(read_json(path.parent / name), str(path.parent / name))
        stated = entry.text("fingerprint")
        actual = fingerprint(canonical_json(policy.document))
        if actual != stated:
            raise entry.refusal("fingerprint", f"{name} has changed since the manifest",
                                value=actual, allowed=stated)
        if entry.number("load_qps", POSITIVE) != policy.load_qps:
            raise entry.refusal("load_qps", f"not the load of {name}",
                                value=entry.value("load_qps"), allowed=f"{policy.load_qps:g}")
        policies.append(policy)
    return sorted(policies, key=lambda policy: policy.load_qps)


def validate_sized(path: str | os.PathLike[str]) -> list[SizedPolicy]:
    """Read policies like :func:`read_sized`; check all fields, and the promise's consistency."""
    policies = read_sized(path)
    for policy in policies:
        item = Fields(policy.document, f"{path} ({policy.load_qps:g} QPS)")
        SizedFile.from_fields(item).expectations.check_figures(item.child("expectations"))
    return policies


def for_load(policies: Sequence[SizedPolicy], load_qps: float | None) -> SizedPolicy:
    """Return the policy with the lowest load of at least ``load_qps``, else that of the highest.

    That of the highest load is also returned if the load is not known.
    """
    if load_qps is not None:
        for policy in policies:
            if policy.load_qps >= load_qps * (1.0 - _TOLERANCE):
                return policy
    return policies[-1]


def _policy(document: dict[str, Any], where: str) -> SizedPolicy:
    """Read a policy's document; what lookups and promises do not need stays unread."""
    fields = Fields(document, where)
    tables = SizedTables.from_fields(fields)
    fields.number("load_qps", POSITIVE)
    expected = fields.child("expectations")
    for name in ("violation_rate", "effective_accuracy"):
        expected.number(name, FRACTION)
    expected.children("by_class")
    fields.child("inputs")
    return SizedPolicy(tables, document)
