"""Second opinions on the digits, on samples that chose nothing: rows, a table and a figure.

python scripts/cascades.py --splits 10 --rows docs/results/cascades.csv
python scripts/cascades.py --rows docs/results/cascades.csv --figure docs/pictures/cascades.png

Samples are the answers of ``scripts/measure_digits.py``, split in two in several ways. One half
chooses thresholds, expected increments and the policy; the other states what is delivered, so all
columns of a row are of the same half:

- one_model, one_model_bound: the policy of a central queue without second opinions, planned
  without headroom as all others are, and the bound for schedulers that answer each request by one
  model, with gathering windows;
- cascade, cascade_bound: the policy with second opinions, which is the one without where they do
  not pay, and the bound with cascades, with gathering windows;
- in_turn_one_model, in_turn: policies of round robin without and with second opinions;
- raw_one_model, raw_cascade: the policies of the central queue by the accuracies and increments of
  that half alone, before they are calibrated to the accuracies of the profile;
- fixed: the best fixed threshold in hindsight: one first model, one second model and one threshold
  at all times, each batch as large as the slack allows. All first models and thresholds are tried
  on the half that states, with the two most promising second models;
- cascade_serve: CascadeServe's gear plan, with six gears, chosen on the first half;
- slackfit: SuperServe's SlackFit, the best in hindsight of several numbers of buckets.

Without ``--splits`` the rows of the file are summed up: means over the splits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from study import markdown, parser_of, write_rows

from ramsis import load_profile
from ramsis.bounds import cascade_bound, fluid_bound
from ramsis.cluster import ServiceTimes
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.profiles.confidences import Confidences, Samples
from ramsis.sim.cascades import served
from ramsis.sim.compiled import replay
from ramsis.sim.plan import FleetScheduler
from ramsis.sim.schedulers import CascadeServe, SlackFit
from ramsis.sim.tables import PlacedCascade
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.cascades import with_cascade
from ramsis.synthesis.cascades.rule import padded, problems_of
from ramsis.synthesis.cascades.search import Sample
from ramsis.synthesis.simulated import prepared_policy

PROFILE, WORKERS = "digits-cpu", 4
ANSWERS = Path(__file__).resolve().parents[1] / "docs/results/digits-answers.npz"
SLOS_MS, LOADS_QPS = (60.0, 25.0), (6_400.0, 9_600.0, 12_800.0, 19_200.0)
_FEW, _MANY, _SEED = 30_000, 100_000, 1 << 20
_GEARS, _BUCKETS = 6, (8, 16, 32, 64, 128)
_SECONDS, _KEPT = 2, 25  # second models that are tried, and fixed thresholds that are played again


def answers() -> tuple[Samples, np.ndarray]:
    """Correctness and confidence by model, and the digit that each sample is a copy of."""
    with np.load(ANSWERS) as kept:
        return {model.name: (kept[f"{model.name}/correct"], kept[f"{model.name}/margin"] / 1000)
                for model in load_profile(PROFILE).models}, kept["digit"]


def best_fixed(policy: Policy, confidences: Confidences) -> float:
    """Effective accuracy of the best fixed threshold in hindsight."""
    fleet, _ = prepared_policy(policy)
    few, many = (Sample(policy, fleet, policy.load_qps, count, _SEED)
                 for count in (_FEW, _MANY))

    def played(placed: PlacedCascade, sample: Sample) -> float:
        _, outcomes = served(placed, fleet, sample.requests)
        in_time = sample.in_time(outcomes.answered_ms, fleet.slo_ms)
        return float((outcomes.accuracy[sample.counted] * in_time).mean())

    found = [(played(placed, few), placed)
             for problem in problems_of(policy, fleet, confidences)[:_SECONDS]
             for rule in problem.fixed_thresholds()
             for placed in [PlacedCascade(problem.fixed_tables(rule),
                                          padded(problem.stated, 0.0))]]
    found.sort(key=lambda one: -one[0])
    return max(played(placed, many) for _, placed in found[:_KEPT])


def delivered(
    scheduler: FleetScheduler, policy: Policy, confidences: Confidences | None
) -> float:
    """Effective accuracy of a scheduler where a policy serves."""
    fleet, _ = prepared_policy(policy)
    fleet = replace(fleet, confidences=confidences)
    plan = scheduler.prepare(fleet)
    sample = Sample(policy, fleet, policy.load_qps, _MANY, _SEED)
    assert plan.compiled is not None
    run = replay(fleet, plan.compiled, sample.requests, sample.duration_ms, policy.load_qps)
    return float(run.reward[sample.counted].mean())


def rows_of(profile: ProfileSet, splits: int) -> Iterator[dict[str, float]]:
    """Play every split, SLO and load."""
    samples, groups = answers()
    times = ServiceTimes.of_all(profile, "p95", 32)
    accuracy = {model.name: model.accuracy for model in profile.models}
    halves = [Confidences.of(samples, groups=groups, seed=split) for split in range(splits)]
    for slo_ms in SLOS_MS:
        common, own = (SynthesisSettings(slo_ms=slo_ms, workers=WORKERS, service="p95",
                                         dispatch=dispatch, headroom=0.0)
                       for dispatch in ("central-queue", "round-robin"))
        for load_qps in LOADS_QPS:
            one = generate_policy(profile, load_qps, common)
            apart = generate_policy(profile, load_qps, own)
            slackfit = max(delivered(SlackFit(buckets), one, None) for buckets in _BUCKETS)
            for split, raw in enumerate(halves):
                confidences = raw.calibrated(accuracy)
                both = with_cascade(one, confidences, times)
                alone, fluid = one.expectations, confidences_bound(one, confidences, times)
                promise = None if both.cascade is None else both.cascade.promise
                in_turn = with_cascade(apart, confidences, times).rates
                yield {
                    "split": split, "slo_ms": slo_ms, "load_qps": load_qps,
                    "one_model": alone.effective_accuracy,
                    "one_model_bound": fluid_bound(
                        times, slo_ms=slo_ms, workers=WORKERS, load_qps=load_qps,
                        gathering=True).upper_bound,
                    "cascade": promise.effective_accuracy if promise
                    else alone.effective_accuracy,
                    "cascade_half_width": promise.effective_half_width if promise else 0.0,
                    "second_opinions": promise.second_opinions if promise else 0.0,
                    "cascade_bound": fluid,
                    "in_turn_one_model": apart.expectations.effective_accuracy,
                    "in_turn": in_turn.effective_accuracy,
                    "raw_one_model": raw_one_model(one, raw),
                    "raw_cascade": raw_one_model(one, raw) if both.cascade is None
                    else raw_cascade(both, raw),
                    "fixed": best_fixed(one, confidences),
                    "cascade_serve": delivered(CascadeServe(_GEARS, max(LOADS_QPS)), one,
                                               confidences),
                    "slackfit": slackfit}


def raw_one_model(policy: Policy, raw: Confidences) -> float:
    """Accuracy of a policy on the half that states, all answers being in time."""
    share = policy.expectations.model_share
    return (1.0 - policy.expectations.violation_rate) * sum(
        part * raw.accuracy(name) for name, part in share.items() if part)


def raw_cascade(policy: Policy, raw: Confidences) -> float:
    """The same with second opinions."""
    assert policy.cascade is not None
    fleet, _ = prepared_policy(policy)
    names = fleet.models
    second = names[policy.cascade.second]
    placed = PlacedCascade.of(policy.cascade, range(len(names)), len(names))
    increment = padded([raw.increment(name, second) if share else np.empty(0)
                        for name, share in zip(names, policy.cascade.share, strict=True)], 0.0)
    sample = Sample(policy, fleet, policy.load_qps, _MANY, _SEED)
    room, outcomes = served(placed, fleet, sample.requests)
    in_time = sample.in_time(outcomes.answered_ms, fleet.slo_ms)
    first = room.model[np.maximum(room.first, 0)][sample.counted]
    known = {model.name for model in raw.models}
    accuracy = np.array([raw.accuracy(name) if name in known else model for name, model
                         in zip(names, fleet.table.accuracy, strict=True)])[first]
    accuracy += np.where(outcomes.second_opinion[sample.counted],
                         increment[first, room.bin_of[sample.counted]], 0.0)
    return float((accuracy * in_time).mean())


def confidences_bound(policy: Policy, confidences: Confidences, times: ServiceTimes) -> float:
    """The bound with cascades on one half."""
    return cascade_bound(times, confidences, slo_ms=policy.slo_ms, workers=policy.workers,
                         load_qps=policy.load_qps, gathering=True).upper_bound


def table_of(rows: pd.DataFrame) -> str:
    """A Markdown table of means over the splits."""
    means = rows.groupby(["slo_ms", "load_qps"], sort=False).mean()
    figures = {"one_model": "one model", "one_model_bound": "its bound", "slackfit": "SlackFit",
               "cascade_serve": "CascadeServe", "fixed": "best fixed threshold",
               "cascade": "with second opinions", "cascade_bound": "bound with cascades",
               "in_turn_one_model": "round robin", "in_turn": "with second opinions"}
    return markdown(["SLO (ms)", "load (requests/s)", *figures.values(), "second opinions"], [
        [f"{slo_ms:g}", f"{load_qps:,.0f}", *(f"{row[name]:.4f}" for name in figures),
         f"{row['second_opinions']:.0%}"]
        for (slo_ms, load_qps), row in zip(means.index.tolist(), means.to_dict("records"),
                                           strict=True)])


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Draw accuracy against load for each SLO: policies, bounds and other schedulers."""
    import matplotlib.pyplot as plt

    looks = {"cascade_bound": ("bound with cascades", "#888888", "--"),
             "cascade": ("with second opinions", "#0072b2", "-"),
             "fixed": ("best fixed threshold in hindsight", "#d55e00", ":"),
             "cascade_serve": ("CascadeServe", "#009e73", ":"),
             "slackfit": ("SlackFit", "#cc79a7", ":"),
             "one_model_bound": ("bound of one model", "#bbbbbb", "--"),
             "one_model": ("one model", "#222222", "-")}
    figure, axes = plt.subplots(1, len(SLOS_MS), figsize=(9.0, 3.6), sharey=True,
                                layout="constrained")
    for axis, slo_ms in zip(axes, SLOS_MS, strict=True):
        means = rows[rows["slo_ms"] == slo_ms].groupby("load_qps").mean()
        for name, (label, colour, line) in looks.items():
            axis.plot(means.index / 1000.0, means[name], line, color=colour, label=label,
                      marker="o" if line == "-" else None, markersize=4)
        axis.set_title(f"SLO {slo_ms:g} ms")
        axis.set_xlabel("load (thousand requests/s)")
    axes[0].set_ylabel("effective accuracy")
    axes[1].legend(frameon=False, fontsize=8, loc="upper right")
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--splits", type=int)
    parser.add_argument("--figure", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.splits is not None:
        profile = replace(load_profile(PROFILE), confidences=None)
        write_rows(chosen.rows, rows_of(profile, chosen.splits))
    rows = pd.read_csv(chosen.rows)
    print(table_of(rows))
    if chosen.figure is not None:
        draw(rows, chosen.figure)
    for name in ("one_model", "raw_one_model"):
        below = rows[name] - rows[name.replace("one_model", "cascade")]
        print(f"\nbelow {name} by more than .0005: {int((below > 5e-4).sum())} of {len(rows)}; "
              f"most: {below.max():.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
