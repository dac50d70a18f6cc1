"""Do promises hold? Cases by the dozen, each promise beside a simulation with seeds of its own.

    python scripts/promises.py CHECK [--out FILE] [--only N] [--match TEXT] [--seed S] [--quick]

Checks of policies for the shipped profiles:

- random: 300 settings drawn at random, of all kinds of dispatch and batching;
- near-capacity: central queues of 300 workers with service times at p95, where the models of the
  queue are at their worst;
- few-workers: central queues of one to four workers, beside per-worker policies and greedy;
- headroom: what policies by default give up, and what that saves when service takes longer;
- figures: every measured figure of 60 promises, against a simulator that shares nothing;
- intervals: errors of 30 promises near the capacity, beside their half-widths.

Checks of policies that are made from samples of service times:

- raw: policies replayed on the samples that they are made from, with and without budgets;
- few-samples: what a hundred samples promise, beside what ten thousand do;
- coverage: how often a promise's 95 % interval covers the truth.

Results are appended to a file of JSON lines, and what is there is not computed again. Misses and
figures over all cases are printed at the end; the exit code is 0 if the check holds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# The matrices are small: threads of the linear algebra would cost more than they bring.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd
from study import Figure, Results, Row, Verdict, parser_of, say, spread

from ramsis.errors import RamsisError


class Check(NamedTuple):
    """What promises have to hold."""

    cases: Callable[[argparse.Namespace], Sequence[Any]]  # dataclasses of plain values
    row: Callable[[Any, int], Row]  # of a case; the number divides how much is simulated
    judge: Callable[[pd.DataFrame], Verdict]  # of rows, nested values as "outer.inner"
    most_errors: int | None = 0  # cases without a policy that are allowed


def checks() -> dict[str, Check]:
    """Return all checks by name."""
    import promises_from_samples as samples  # after the threads are set
    import promises_on_profiles as profiles

    return {
        "random": Check(profiles.random_settings, profiles.promise,
                        partial(profiles.judge_promises, upto=0.95)),
        "near-capacity": Check(profiles.near_capacity, profiles.promise,
                               partial(profiles.judge_promises, upto=1.1)),
        "few-workers": Check(profiles.few_workers, profiles.beside_others, profiles.judge_others),
        "headroom": Check(profiles.headroom_settings, profiles.with_and_without_headroom,
                          profiles.judge_headroom),
        "figures": Check(profiles.quick_to_settle, profiles.all_figures, profiles.judge_figures,
                         most_errors=None),
        "intervals": Check(profiles.at_capacity, profiles.error_of_promise,
                           profiles.judge_intervals),
        "raw": Check(samples.raw_cases, samples.replayed_promise, samples.judge_replays),
        "few-samples": Check(samples.few_cases, samples.few_and_many, samples.judge_few),
        "coverage": Check(samples.coverage_cases, samples.interval_and_truth,
                          samples.judge_coverage),
    }


def words_of(case: Any) -> str:
    """Return the values of a case in a line, which ``--match`` looks into."""
    return ", ".join(f"{name} {value}" for name, value in asdict(case).items())


def row_of(check: Check, case: Any, shorter: int) -> Row:
    """Return the results of a case, or why there are none, and the processor time it took."""
    say(words_of(case))
    start_s = time.process_time()
    try:
        found = check.row(case, shorter)
    except RamsisError as error:
        found = {"error": str(error)}
    return {**asdict(case), **found, "seconds": round(time.process_time() - start_s, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a check, print misses and figures, and return the exit code."""
    by_name = checks()
    parser = parser_of(__doc__)
    parser.add_argument("check", choices=by_name)
    parser.add_argument("--out", type=Path, metavar="FILE",
                        help="results as JSON lines (default: promises_out/CHECK.jsonl)")
    parser.add_argument("--match", default="", metavar="TEXT",
                        help="only cases whose line, as progress shows it, has this in it")
    parser.add_argument("--only", type=int, metavar="N",
                        help="so many of the cases, spread over all of them")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of what is drawn")
    parser.add_argument("--quick", action="store_true", help="a tenth of the simulated requests")
    parser.add_argument("--samples", type=int,
                        help="of each batch, for checks of samples (by default 2000, 100, 500)")
    parser.add_argument("--budgets", type=float, nargs="*", default=(), metavar="V",
                        help="violation rates that policies of the check raw must keep, too")
    parser.add_argument("--draws", type=int, default=100, help="of samples, for coverage")
    given = parser.parse_args(arguments)
    check = by_name[given.check]
    cases = [case for case in check.cases(given) if given.match in words_of(case)]
    if given.only is not None:
        cases = spread(cases, given.only)
    results = Results(given.out or Path("promises_out") / f"{given.check}.jsonl")
    key = {"quick": True} if given.quick else {}
    rows = [results.row({**asdict(case), **key},
                        partial(row_of, check, case, 10 if given.quick else 1)) for case in cases]
    made = [row for row in rows if "error" not in row]
    figures, misses = check.judge(pd.json_normalize(made)) if made else ([], {})
    figures = [Figure("cases without a policy", len(rows) - len(made), check.most_errors),
               *figures]
    for row in rows:
        if "error" in row:
            print(f"no policy: {json.dumps(row)}")
    for reason, missed in misses.items():
        for at in missed[missed].index:
            print(f"{reason}: {json.dumps(made[at])}")
    print(f"{given.check}: {len(rows)} cases")
    for figure in figures:
        most = "" if figure.most is None else f", at most {figure.most:.5g}"
        print(f"{'' if figure.holds else 'NO: '}{figure.what}: {figure.value:.5g}{most}")
    holds = all(figure.holds for figure in figures)
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
