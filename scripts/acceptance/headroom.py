"""Headroom: what policies by default give up, and what that saves when service takes longer.

Twenty settings from 40 to 90 % of the capacity on the three shipped profiles, each with a policy
by default and one planned as profiled (``headroom=0``). By default at most 0.003 of effective
accuracy may be given up as promised, 0.001 on average. Both are simulated with service times as
profiled, 10 % longer, and with slow spells (5 % of the time, three times slower, 100 ms): over the
settings the policies by default have at most a quarter of the others' violations with the
longer times, and fewer than the others in slow spells. What the file states of violations at
longer times is within a fifth of the simulated rate, or 0.0005, and with the usual times a policy
by default has at most 0.0002 more violations than the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acceptance.line import Line, Row, Verdict, judged, named
from acceptance.setting import Effort, Setting, capacity_qps, measured, of_share
from ramsis.sim import Policies, SlowSpells

__all__ = ["LINE"]

FLEETS = (("digits-cpu", 25.0, 4), ("text-cpu", 95.0, 20), ("image-cpu", 350.0, 60))
NAMED = (("digits-cpu", 1600.0, "central-queue"), ("digits-cpu", 3200.0, "central-queue"),
         ("digits-cpu", 1600.0, "round-robin"), ("text-cpu", 3000.0, "central-queue"),
         ("image-cpu", 5100.0, "central-queue"))
SHARES = (0.4, 0.55, 0.7, 0.8, 0.9)
SLOWER = 1.1
SPELLS = SlowSpells(share=0.05, factor=3.0, length_ms=100.0)
_QUERIES = 400_000
_LOSS, _MEAN_LOSS, _QUARTER = 0.003, 0.001, 0.25
_FIFTH, _POINTS, _MORE = 0.2, 5e-4, 2e-4


def _settings(seed: int) -> list[Setting]:
    """Five that were looked at before, and fifteen by shares of the capacity."""
    fleets = {name: (slo_ms, workers) for name, slo_ms, workers in FLEETS}
    made = []
    for name, load_qps, dispatch in NAMED:
        slo_ms, workers = fleets[name]
        share = load_qps / capacity_qps(name, slo_ms, workers, dispatch)
        made.append(Setting(name, slo_ms, workers, load_qps, share, dispatch))
    return made + [
        of_share(*fleet, share, ("round-robin", "central-queue")[(i + j) % 2])
        for i, fleet in enumerate(FLEETS) for j, share in enumerate(SHARES)]


def _row(setting: Setting, effort: Effort) -> Row:
    """Promises of both policies, and what they do at three kinds of service times."""
    row: Row = {}
    for kind, options in (("robust", {}), ("pure", {"headroom": 0.0})):
        own = setting.other(**options)
        policy = own.policy()
        expected = policy.expectations
        row[kind] = {"promised": expected.effective_accuracy,
                     "promised_violations": expected.violation_rate,
                     "factor": policy.planned_factor}
        if policy.headroom is not None:
            row["stated"] = policy.headroom.slower_violation_rate
        for times, terms in (("usual", {}), ("slower", {"slower": SLOWER}),
                             ("spells", {"spells": SPELLS})):
            row[kind][times] = measured(Policies((policy,)), own, effort.queries(_QUERIES),
                                        service=policy.service, engine=effort.engine,
                                        **terms)._asdict()
    return row


def _verdict(rows: Sequence[Row]) -> Verdict:
    made = [row for row in rows if "error" not in row]
    lost = np.array([row["pure"]["promised"] - row["robust"]["promised"] for row in made])

    def mean(kind: str, times: str, figure: str = "violation_rate") -> float:
        return float(np.mean([row[kind][times][figure] for row in made]))

    given_up = mean("pure", "usual", "effective_accuracy") - mean(
        "robust", "usual", "effective_accuracy")
    slower = mean("robust", "slower") / mean("pure", "slower")
    spells = mean("robust", "spells") / mean("pure", "spells")
    holds, summary = judged(
        ("settings without policies", len(rows) - len(made), 0, "d"),
        ("largest loss as promised", float(lost.max()), _LOSS, ".4f"),
        ("mean loss as promised", float(lost.mean()), _MEAN_LOSS, ".5f"),
        ("mean loss in simulation", given_up, None, ".5f"),
        ("violations at 10 % longer times, mean, by default", mean("robust", "slower"), None,
         ".4%"),
        ("the same, planned as profiled", mean("pure", "slower"), None, ".4%"),
        ("ratio of the two", slower, _QUARTER, ".3f"),
        ("violations in slow spells, mean, by default", mean("robust", "spells"), None, ".4%"),
        ("the same, planned as profiled", mean("pure", "spells"), None, ".4%"),
        ("ratio of the two in slow spells", spells, np.nextafter(1.0, 0.0), ".3f"),
        ("violations at 10 % longer times stated wrongly", sum(map(_off, made)), 0, "d"),
        ("settings with more violations than planned as profiled", len(
            [row for row in made if _more(row, "usual", _MORE)]), 0, "d"))
    misses = [named(row, why="loss as promised", figure=f"{one:.4f}")
              for row, one in zip(made, lost, strict=True) if one > _LOSS]
    misses += [named(row, why="more violations in slow spells",
                     figure=_against(row, "spells")) for row in made if _more(row, "spells")]
    misses += [named(row, why="more violations at longer times",
                     figure=_against(row, "slower")) for row in made if _more(row, "slower")]
    misses += [named(row, why=row["error"]) for row in rows if "error" in row]
    shown = [named(row, factor=f"{row['robust']['factor']:g}",
                   promised=f"{row['robust']['promised']:.4f} | {row['pure']['promised']:.4f}",
                   **{f"{label}: effective accuracy (violations)":
                      f"{_text(row['robust'][times])} | {_text(row['pure'][times])}"
                      for label, times in (("as profiled", "usual"), ("10 % longer", "slower"),
                                           ("slow spells", "spells"))}) for row in made]
    return Verdict(holds, misses, summary, "By default | planned as profiled", shown)


def _more(row: Row, times: str, allowed: float = 0.0) -> bool:
    """Whether a policy by default has more violations, by more than chance and what is allowed."""
    own, other = row["robust"][times], row["pure"][times]
    chance = 3.0 * np.hypot(own["violation_error"], other["violation_error"])
    return bool(own["violation_rate"] > other["violation_rate"] + chance + allowed)


def _off(row: Row) -> bool:
    """Whether the file's violations at longer times are not those that are simulated."""
    found, stated = row["robust"]["slower"], row["stated"]
    allowed = max(_FIFTH * found["violation_rate"], _POINTS) + 3.0 * found["violation_error"]
    return bool(abs(stated - found["violation_rate"]) > allowed)


def _against(row: Row, times: str) -> str:
    return (f"{row['robust'][times]['violation_rate']:.4%} | "
            f"{row['pure'][times]['violation_rate']:.4%}")


def _text(figures: Row) -> str:
    return f"{figures['effective_accuracy']:.4f} ({100 * figures['violation_rate']:.3g} %)"


LINE = Line("Headroom", _settings, _row, _verdict)
