"""Files with one number changed so that something they state is false, and whether that is found.

A *claim* is a figure of a promise, a certificate, a budget or a level. It is moved by more than
the tolerance of :mod:`ramsis.verify.solved_again`. A number that the claims rest on
(a latency, an accuracy, the load) is moved by some per cent, and counts where the promise of the
changed problem, by the analysis, is no longer the stated one.

``python -m tests.verify.mutations --count 1000`` tries many on all kinds of files.
"""

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

from ramsis.cluster import Cluster, SloClass, WorkerType
from ramsis.errors import RamsisError
from ramsis.policy import Policy, policy_text
from ramsis.runtime.manifest import MANIFEST_NAME
from ramsis.synthesis import SynthesisSettings, analyse_policy, generate_policy, generate_set
from ramsis.synthesis.simulated import measured
from ramsis.verify.policy import TOLERANCE, verify_policy
from ramsis.verify.sets import verify_levels
from tests.sim.raw_samples import LAWS, Measured
from tests.synthesis import samples

T = TypeVar("T")
Document = dict[str, Any]
Place = tuple[Any, ...]

TWO = (SloClass(60.0, 0.4), SloClass(100.0, 0.6))
TYPES = (WorkerType("a", samples.tiny_profile(), 3),
         WorkerType("b", samples.linear_profile((0.55, 2.0, 1.0), (0.8, 12.0, 9.0)), 2))
MMPP = "mmpp:ratio=4,burst-ms=500,share=0.2"


def _file(load_qps: float, varying: bool = False, **changes: Any) -> Callable[[], Document]:
    def made() -> Document:
        profile = samples.varying_profile() if varying else samples.tiny_profile()
        return generate_policy(profile, load_qps, _settings(**changes)).to_document()

    return made


def _sampled(load_qps: float, **changes: Any) -> Callable[[], Document]:
    def made() -> Document:
        profile = Measured.of(LAWS["log-normal"], 300).profile
        return generate_policy(profile, load_qps, _settings(
            slo_ms=60.0, workers=2, **changes)).to_document()

    return made


def _settings(**changes: Any) -> SynthesisSettings:
    wanted = {"slo_ms": 100.0, "workers": 4, "max_queue": 6, **changes}
    if wanted.get("dispatch") != "central-queue":
        wanted = {"grid": "fixed:12", **wanted}
    return SynthesisSettings(**wanted)


FILES: Mapping[str, Callable[[], Document]] = {
    "per worker": _file(900.0),
    "per decision": _file(900.0, objective="per-decision"),
    "serves late queries": _file(1300.0, late="serve"),
    "unstable queues": _file(5500.0, late="serve"),
    "drops": _file(1800.0, late="drop", violation_price=0.5),
    "variable batching": _file(900.0, batching="variable"),
    "random service": _file(900.0, varying=True),
    "finite samples": _sampled(150.0),
    "finite samples, central queue": _sampled(150.0, dispatch="central-queue"),
    "overhead": _file(700.0, overhead_ms=0.5),
    "batch arrivals": _file(700.0, arrivals="negative-binomial:4", objective="per-decision"),
    "modulated": _file(500.0, arrivals=MMPP, max_queue=3, grid="fixed:6"),
    "shortest queue": _file(900.0, dispatch="shortest-queue"),
    "central queue": _file(900.0, dispatch="central-queue"),
    "central queue near capacity": _file(1500.0, dispatch="central-queue"),
    "central queue, random service": _file(900.0, True, dispatch="central-queue"),
    "classes": _file(900.0, dispatch="central-queue", slo_classes=TWO),
    "budget": _file(1200.0, max_violation=0.02),
    "budget, central queue": _file(1650.0, dispatch="central-queue", max_violation=0.02),
}
"""Kinds of policy files."""


def _set(types: tuple[WorkerType, ...], classes: tuple[SloClass, ...], loads: tuple[float, ...],
         **changes: Any) -> Callable[[Path], None]:
    def made(folder: Path) -> None:
        generate_set(Cluster(types, classes), loads, _settings(**changes), folder)

    return made


SETS: Mapping[str, Callable[[Path], None]] = {
    "like workers": _set(TYPES[:1], (SloClass(100.0),), (300.0, 900.0)),
    "worker types": _set(TYPES, (SloClass(100.0),), (900.0,)),
    "classes in a set": _set(TYPES[:1], TWO, (600.0,), dispatch="central-queue"),
}
"""Kinds of sets; what is changed is the manifest."""

CLAIMS = ("expectations", "certificate", "budget", "replay", "headroom")
_BOUNDED = ("accuracy", "violation_rate", "effective_accuracy", "utilisation", "full_queue_rate",
            "upper_bound", "model_share")  # fractions of 1


class Mutant(NamedTuple):
    """A document with one number changed."""

    place: Place
    stated: float
    changed: float
    document: Document


def numbers(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every number of a document; true and false, too."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, (*place, key))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from numbers(part, (*place, i))
    elif isinstance(value, int | float):
        yield place, value


def put(document: Document, place: Place, value: Any) -> Document:
    """A copy with another value at a place."""
    changed = copy.deepcopy(document)
    at: Any = changed
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return changed


def moved(place: Place, value: Any, rng: np.random.Generator) -> Any:
    """Another value, by more than the tolerance of the figure; None where there is none."""
    if isinstance(value, bool):
        return not value
    path = ".".join(map(str, place))
    far = float(rng.uniform(1.5, 40.0)) * (1 if rng.random() < 0.5 else -1)
    last = str(place[-1])
    if last in ("iterations", "queries", "runs", "seed", "nodes_per_bin", "workers"):
        share = {"iterations": 0.2, "queries": 0.01}.get(last, 0.0)
        step = 3 + int(share * value)
        return value + step
    if last == "capacity_qps" or "load_qps" in last:
        other = value * (1 + 2e-6 * far)
    elif last in ("samples", "unseen", "unseen_deviation"):  # of intervals: to a thousandth
        other = value * (1 + 2e-3 * far)
    elif last == "confidence":
        other = value / 2.0
    elif last in ("bellman_residual", "truncated_mass"):
        other = value + 1e-6 * abs(far)
    elif place[0] in ("budget", "replay"):
        other = value + 2e-6 * far
    elif last == "mean":
        other = value + 0.08 * far  # of a hundred milliseconds at most
    elif last in ("p50", "p99"):
        other = value + far
    else:
        # Utilisation, shares and distributions of single workers are held to ten times that.
        other = value + 12.0 * TOLERANCE * far
    fraction = last in _BOUNDED or "model_share" in path or last.endswith("_rate")
    if fraction and not 0 <= other <= 1:
        other = value - (other - value)
        if not 0 <= other <= 1:
            return None
    if last in ("queue_length", "batch_size") and other < 0:
        return None
    below = last.endswith(("half_width", "_qps", "residual")) and other < 0
    return value - (other - value) if below else other


def mutants(document: Document, rng: np.random.Generator, count: int) -> Iterator[Mutant]:
    """Documents with a claim changed."""
    places = [(place, value) for place, value in numbers(document) if place[0] in CLAIMS]
    made = 0
    while made < count:
        place, value = places[int(rng.integers(len(places)))]
        other = (_missed(document["budget"], rng) if place[-1] == "max_violation_rate"
                 else moved(place, value, rng))
        if other is None or other == value or place[-1] == "tolerance":
            continue
        made += 1
        yield Mutant(place, value, other, put(document, place, other))


def _missed(budget: Document, rng: np.random.Generator) -> float:
    """A budget that is below what was measured, to the upper end of its interval."""
    upper = budget["violation_rate"] + budget["violation_half_width"]
    return float(rng.uniform(0.1, 0.9)) * upper


def inputs(document: Document, rng: np.random.Generator, count: int) -> Iterator[Mutant]:
    """Documents with a number changed that the claims rest on."""
    places: list[Place] = [("load_qps",), ("workers",)]
    for m, model in enumerate(document["models"]):
        places += [("models", m, "accuracy")]
        places += [("models", m, "latency_ms", b) for b in range(len(model["latency_ms"]))]
    values = dict(numbers(document))
    for _ in range(count):
        place = places[int(rng.integers(len(places)))]
        value = values[place]
        factor = 1 + float(rng.uniform(0.02, 0.2)) * (1 if rng.random() < 0.5 else -1)
        other = value + 1 if place == ("workers",) else value * factor
        yield Mutant(place, value, other, put(document, place, other))


_COSTLY = (
    ("ramsis.verify.per_worker", "_solved_again"),
    ("ramsis.verify.per_worker", "_dual_bound"),
    ("ramsis.verify.per_worker", "_stationary"),
    ("ramsis.mdp._value_iteration", "value_iteration"),
    ("ramsis.worker.explicit", "build_explicit"),
    ("ramsis.worker.solve:WorkerModel", "evaluate"),
    ("ramsis.verify.central", "solved_again"),
    ("ramsis.verify.central", "dual_bound"),
    ("ramsis.verify.budget", "simulated"),
    ("ramsis.verify.replay", "measured"),
    ("ramsis.verify.replay", "played"),
    ("ramsis.verify.replay", "replayed"),
    ("ramsis.verify.sets", "simulated"),
)
"""What a verification spends its time on, and does not depend on claims."""


class Derived:
    """What files with the same table and inputs have in common, derived once.

    The n-th call of a function in a verification gives what it gave in the first one. Numbers and
    texts that it takes are told apart, as a file may state them.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._calls: Counter[Any] = Counter()
        self._working = False

    def anew(self, verification: Callable[..., T], *given: Any) -> T:
        """Another verification, from its first call on."""
        self._calls.clear()
        return verification(*given)

    def once(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The function, worked out once for each of its calls in a verification."""
        def found(*args: Any, **named: Any) -> Any:
            if self._working:  # on another one, which is known as a whole afterwards
                return real(*args, **named)
            told = (real, *(x for x in args if isinstance(x, int | float | str)), *sorted(
                (k, v) for k, v in named.items() if isinstance(v, int | float | str)))
            self._calls[told] += 1
            key = (told, self._calls[told])
            if key not in self._known:
                self._working = True
                try:
                    self._known[key] = real(*args, **named)
                finally:
                    self._working = False
            return self._known[key]

        return found


@contextmanager
def derived_once() -> Iterator[Derived]:
    """Verifications that derive once what they have in common."""
    derived = Derived()
    with pytest.MonkeyPatch.context() as patched:
        for place, name in _COSTLY:
            module, _, owner = place.partition(":")
            target: Any = import_module(module)
            target = getattr(target, owner) if owner else target
            patched.setattr(target, name, derived.once(getattr(target, name)))
        yield derived


def is_false(document: Document) -> bool:
    """Whether the promise of a changed problem is another one, by the analysis or as measured."""
    try:
        policy = Policy.from_document(document, "changed")
        known = policy.replay
        found: Any = analyse_policy(policy).expectations() if known is None else measured(
            policy, queries=known.queries, runs=known.runs, seed=known.seed,
            workers=known.workers, warm_up_slos=known.warm_up_slos)[1]
    except (RamsisError, ValueError):
        return True
    stated = policy.expectations
    effective = found.effective_accuracy
    if known is not None and stated.upper_bound is not None:
        effective = min(effective, stated.upper_bound)  # which chance may pass
    return (abs(stated.violation_rate - found.violation_rate) > 2 * TOLERANCE
            or abs(stated.effective_accuracy - effective) > 2 * TOLERANCE)


def failures(made: Policy | Document, folder: Path, **options: float) -> list[str]:
    """Names of the claims of a policy, or of a file's document, that do not hold."""
    path = folder / "policy.json"
    path.write_text(json.dumps(made.to_document() if isinstance(made, Policy) else made))
    return [check.claim for check in verify_policy(path, **options) if not check.holds]


def is_found(document: Document, folder: Path) -> bool:
    """Whether verification refuses the file, or a claim does not hold."""
    try:
        return bool(failures(document, folder))
    except RamsisError:
        return True


def is_found_in_set(document: Document, folder: Path) -> bool:
    """The same of a manifest in its folder."""
    (folder / MANIFEST_NAME).write_text(json.dumps(document))
    try:
        return not all(check.holds for check in verify_levels(folder, TOLERANCE))
    except RamsisError:
        return True


def set_mutants(document: Document, rng: np.random.Generator, count: int) -> Iterator[Mutant]:
    """Manifests with a number changed: whatever it is, something is false then.

    But what the way gives that was not chosen, whose policies are not in the set.
    """
    other_way = "apart" if len(document["levels"][0]["stations"]) == 1 else "shared"
    places = [(place, value) for place, value in numbers(document)
              if not str(place[-1]).startswith(other_way)]
    made = 0
    while made < count:
        place, value = places[int(rng.integers(len(places)))]
        if isinstance(value, bool):
            other: Any = not value
        elif isinstance(value, int):
            other = value + 1
        else:
            other = value + float(rng.uniform(2e-5, 0.02)) * max(abs(value), 0.05)
            if value <= 1 and other > 1:
                other = value - (other - value)
        made += 1
        yield Mutant(place, value, other, put(document, place, other))


def escaped(kind: str, rng: np.random.Generator, count: int, folder: Path
            ) -> tuple[int, list[Mutant]]:
    """How many changes were tried on a kind of file, and those that were not found."""
    if kind in SETS:
        target = folder / kind
        SETS[kind](target)
        document = json.loads((target / MANIFEST_NAME).read_text())
        assert not is_found_in_set(document, target)
        tried = list(set_mutants(document, rng, count))
        with derived_once() as derived:
            return len(tried), [one for one in tried if not derived.anew(
                is_found_in_set, one.document, target)]
    document = json.loads(policy_text(Policy.from_document(FILES[kind](), kind)))
    assert failures(document, folder) == []
    claims = list(mutants(document, rng, count - count // 5))
    with derived_once() as derived:
        assert not derived.anew(is_found, document, folder)
        missed = [one for one in claims if not derived.anew(is_found, one.document, folder)]
    changed = [] if "budget" in document else [
        one for one in inputs(document, rng, count // 5) if is_false(one.document)]
    missed += [one for one in changed if not is_found(one.document, folder)]
    return len(claims) + len(changed), missed


def main() -> None:
    """Try many, and print those that are not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", action="append", choices=[*FILES, *SETS])
    given = parser.parse_args()
    kinds = given.kind or [*FILES, *SETS]
    all_tried, all_missed = 0, 0
    for kind in kinds:
        rng = np.random.default_rng([given.seed, len(kind), *map(ord, kind)])
        with TemporaryDirectory() as folder:
            tried, missed = escaped(kind, rng, -(-given.count // len(kinds)), Path(folder))
        all_tried, all_missed = all_tried + tried, all_missed + len(missed)
        print(f"{kind}: {tried} tried, {len(missed)} not found", flush=True)
        for one in missed:
            print("   ", ".".join(map(str, one.place)), one.stated, "->", one.changed)
    print(f"{all_tried} tried, {all_missed} not found")
    sys.exit(1 if all_missed else 0)


if __name__ == "__main__":
    main()
