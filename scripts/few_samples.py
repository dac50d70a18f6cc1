"""What a hundred samples of each batch promise, beside what ten thousand do.

Settings are drawn at random for `text-cpu` and `image-cpu`: SLO, workers, load, dispatch. Samples
of each batch are drawn from a shipped profile's own distributions, 100 and 10,000 of them, and a
policy is made from either. A setting *holds* when the upper end of the violation rate's interval
from 100 samples is at most five times that from 10,000, and is no less than the rate of its policy
replayed on the 10,000 samples. A *budget* of 1 % holds when the policy that is made within it from
100 samples meets it in such a replay, by twice the replay's standard error.

Results are appended to a file of JSON lines, and those that are there are not made again.

python scripts/few_samples.py [--out FILE] [--settings 20] [--few 100] [--seed 0]
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import evaluation.command  # noqa: F401 - sets the threads before anything is loaded
import numpy as np
from acceptance.results import Results
from acceptance.setting import capacity_qps
from study import parser_of

from ramsis import load_profile
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.errors import InfeasibleError
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.sim.raw_replay import Replayed, Samples, replayed

_MANY, _TIMES, _BUDGET = 10_000, 5.0, 0.01
_QUERIES = 1_000_000
_SLO_MS = {"text-cpu": (60.0, 500.0), "image-cpu": (120.0, 500.0)}
_LARGEST = 32


@dataclass(frozen=True)
class Setting:
    """What policies are made for; ``few`` samples of each batch, drawn by ``seed``."""

    profile: str
    slo_ms: float
    workers: int
    dispatch: str
    share: float
    few: int
    seed: int


def settings(number: int, few: int, seed: int) -> list[Setting]:
    """Some of them, always the same; ``share`` is the load's of the capacity."""
    rng = np.random.default_rng(1)
    found = []
    for i in range(number):
        profile = ("text-cpu", "image-cpu")[i % 2]
        low, high = np.log(_SLO_MS[profile])
        found.append(Setting(
            profile, round(float(np.exp(rng.uniform(low, high))), 1),
            int(rng.choice([1, 4, 12, 60])), ("round-robin", "central-queue")[i // 2 % 2],
            round(float(rng.uniform(0.2, 0.9)), 3), few, 1000 * seed + i))
    return found


@cache
def samples_of(profile: str, count: int, seed: int) -> Samples:
    """As many samples of each batch, drawn from a shipped profile's own distributions."""
    shipped: ProfileSet = load_profile(profile)
    rng = np.random.default_rng(seed)
    times = ServiceTimes.of_all(shipped, DISTRIBUTION, _LARGEST)
    return {name: {size: np.interp(rng.random(count), times.levels, of_model[size - 1])
                   for size in range(1, _LARGEST + 1)}
            for name, of_model in zip(times.models, times.quantiles_ms, strict=True)}


def profile_of(profile: str, samples: Samples) -> ProfileSet:
    """What is measured by these samples."""
    shipped: ProfileSet = load_profile(profile)
    return replace(shipped, models=tuple(
        ModelProfile(model.name, model.accuracy, tuple(
            BatchProfile.from_samples(one.batch, samples[model.name][one.batch])
            for one in model.batches))
        for model in shipped.models))


def outcome(setting: Setting) -> dict[str, Any]:
    """The upper ends, and what the policies from few samples do on many."""
    many = samples_of(setting.profile, _MANY, 10**6)
    few = samples_of(setting.profile, setting.few, setting.seed)
    load_qps = round(setting.share * capacity_qps(
        setting.profile, setting.slo_ms, setting.workers, setting.dispatch), 1)

    def policy(samples: Samples, budget: float | None = None) -> Policy:
        return generate_policy(profile_of(setting.profile, samples), load_qps, SynthesisSettings(
            slo_ms=setting.slo_ms, workers=setting.workers, dispatch=setting.dispatch,
            max_violation=budget))

    def replay(made: Policy) -> Replayed:
        return replayed(made, many, _QUERIES, 1)

    found: dict[str, Any] = {"load_qps": load_qps}
    for name, samples in (("few", few), ("many", many)):
        made = policy(samples)
        expected = made.expectations
        assert expected.interval is not None
        found[name] = {"promised": expected.violation_rate,
                       "accuracy": expected.effective_accuracy,
                       "interval": list(expected.interval.violation_rate),
                       **replay(made)._asdict()}
    try:
        made = policy(few, _BUDGET)
    except InfeasibleError as refusal:
        found["refused"] = str(refusal)
    else:
        found["budget"] = {"accuracy": made.expectations.effective_accuracy,
                           **replay(made)._asdict()}
    return found


def line(setting: Setting, found: dict[str, Any]) -> tuple[str, bool, bool, bool]:
    """One row of the table; whether its ends are near, it covers, and keeps its budget."""
    few, many = found["few"], found["many"]
    times = few["interval"][1] / many["interval"][1]
    covers = few["violation_rate"] - 2.0 * few["error"] <= few["interval"][1]
    head = (f"{setting.profile:9} {setting.dispatch:13} {setting.workers:2} "
            f"{setting.slo_ms:5g} ms {found['load_qps']:8g} QPS  ")
    if "refused" in found:
        kept, words = False, "refused: " + found["refused"]
    else:
        budget = found["budget"]
        kept = budget["violation_rate"] - 2.0 * budget["error"] <= _BUDGET
        words = f"{100 * budget['violation_rate']:.4f} {budget['accuracy']:.4f}"
    shown = " ".join(f"{100 * one['promised']:7.4f} (<{100 * one['interval'][1]:7.4f}) "
                     f"{100 * one['violation_rate']:7.4f}" for one in (few, many))
    marks = "".join(mark for holds, mark in ((times <= _TIMES, " WIDE"), (covers, " BELOW"),
                                             (kept, " BUDGET")) if not holds)
    return f"{head}{shown}  x{times:.2f}  {words}{marks}", times <= _TIMES, covers, kept


def main() -> int:
    """Make what is missing, print the table, and say how many hold."""
    command = parser_of(__doc__)
    command.add_argument("--out", type=Path, metavar="FILE",
                         default=Path("evaluation_out/few_samples.jsonl"))
    command.add_argument("--settings", type=int, default=20)
    command.add_argument("--few", type=int, default=100, help="samples of each batch")
    command.add_argument("--seed", type=int, default=0, help="of the few samples")
    given = command.parse_args()
    results, held = Results(given.out), np.zeros(3, dtype=int)
    print("setting  promised (<upper end) replayed, % of few and of many samples  x  budget: "
          "replayed, accuracy")
    for setting in settings(given.settings, given.few, given.seed):
        found = results.row(asdict(setting), partial(outcome, setting))
        text, *holds = line(setting, found)
        held += holds
        print(text, flush=True)
    print(f"of {given.settings}: {held[0]} within {_TIMES:g} times, {held[1]} cover the replay, "
          f"{held[2]} keep the budget of {_BUDGET:g}")
    return int((held < given.settings).any())


if __name__ == "__main__":
    sys.exit(main())
