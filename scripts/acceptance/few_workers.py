"""Central queues of few workers, beside per-worker policies and greedy by the deadline.

Each shipped profile with one to four workers, twenty loads from 5 to 95 % of the capacity. The
gain of the central queue in simulation (effective accuracy less price times violations) is at
least that of the per-worker policy and of greedy (which drops what is late), less 0.0005 and what
chance makes of it; one worker's central queue knows all that the worker's own queue does, and may
also wait. Synthesis of a central queue takes at most 3 s of processor time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from acceptance.line import Line, Row, Verdict, judged, named
from acceptance.setting import Effort, Setting, measured, of_share
from ramsis.sim import Greedy, Policies

__all__ = ["LINE"]

FLEETS = (("digits-cpu", 25.0), ("text-cpu", 95.0), ("image-cpu", 350.0))
WORKERS = (1, 2, 3, 4)
LOADS = np.linspace(0.05, 0.95, 20)
OTHERS = ("per_worker", "greedy")
_QUERIES = 400_000
_LESS, _ERRORS, _SECONDS = 0.0005, 2.0, 3.0


def _settings(seed: int) -> list[Setting]:
    return [of_share(*fleet, workers, round(float(share), 4), "central-queue")
            for fleet in FLEETS for workers in WORKERS for share in LOADS]


def _row(setting: Setting, effort: Effort) -> Row:
    """Gains of the three schedulers on the same arrivals."""
    start_s = time.process_time()
    central = setting.policy()
    synthesis_s = time.process_time() - start_s
    own = setting.other("round-robin").policy()
    schedulers = {"central": Policies((central,)), "per_worker": Policies((own,)),
               "greedy": Greedy(late="drop")}
    return {"synthesis_s": round(synthesis_s, 2), **{
        name: measured(scheduler, setting, effort.queries(_QUERIES), service=central.service,
                       price=central.violation_price, engine=effort.engine)._asdict()
        for name, scheduler in schedulers.items()}}


def _verdict(rows: Sequence[Row]) -> Verdict:
    made = [row for row in rows if "error" not in row]
    below = {name: [row for row in made if _ahead(row, name) < -_most(row, name)]
             for name in OTHERS}
    slow = [row for row in made if row["synthesis_s"] > _SECONDS]
    single = [row for row in made if row["workers"] == 1]
    holds, summary = judged(
        ("settings without policies", len(rows) - len(made), 0, "d"),
        *((f"settings below {_word(name)}", len(below[name]), 0, "d") for name in OTHERS),
        *((f"least gain over {_word(name)}",
           min((_ahead(row, name) for row in made), default=0.0), None, "+.5f")
          for name in OTHERS),
        *((f"mean gain over {_word(name)}",
           float(np.mean([_ahead(row, name) for row in made])), None, "+.5f")
          for name in OTHERS),
        ("one worker: settings where it is better by more than 0.0005",
         sum(_ahead(row, "per_worker") > _LESS for row in single), None, "d"),
        ("settings with a synthesis of more than 3 s", len(slow), 0, "d"),
        ("longest synthesis (s)", max((row["synthesis_s"] for row in made), default=0.0), None,
         ".2f"))
    misses = [_shown(row, f"below {_word(name)}") for name in OTHERS for row in below[name]]
    misses += [_shown(row, "synthesis") for row in slow]
    misses += [named(row, why=row["error"]) for row in rows if "error" in row]
    return Verdict(holds, misses, summary)


def _ahead(row: Row, other: str) -> float:
    return float(row["central"]["gain"] - row[other]["gain"])


def _most(row: Row, other: str) -> float:
    """How far the central queue may stand behind."""
    chance = np.hypot(row["central"]["gain_error"], row[other]["gain_error"])
    return _LESS + _ERRORS * float(chance)


def _word(name: str) -> str:
    return name.replace("_", " ")


def _shown(row: Row, why: str) -> Row:
    gains = {name: f"{row[name]['gain']:.5f}" for name in ("central", *OTHERS)}
    return named(row, why=why, **gains, synthesis_s=row["synthesis_s"])


LINE = Line("Few workers", _settings, _row, _verdict)
