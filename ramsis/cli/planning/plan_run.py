"""The commands of ``ramsis plan``, run one by one, and the verdict that they come to."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import click

from ramsis.bounds import Targets
from ramsis.cli.options.clusters import dispatch_words
from ramsis.cli.progress import run_with_bar
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.files import canonical_json, make_folder, read_json, write_atomic
from ramsis.report.verdicts import bounded_schedulers
from ramsis.sim import ConstantLoad, Workload
from ramsis.sim.result import FEW_VIOLATIONS
from ramsis.synthesis.capacity import FIGURES, MeasuredRates, Trial
from ramsis.synthesis.schedulers import fleet_scheduler
from ramsis.tables import effective_words, with_error

CASCADES = "central-queue:cascades=true"
"""Scheduler of policies for a common queue, with second opinions."""
QUEUES = {"central-queue": "a common queue", "round-robin": "a queue each",
           CASCADES: "a common queue and second opinions"}
"""The kinds of dispatch that are compared, and what a verdict calls them."""
_OPINIONS = ("second_opinions", "gain", "gain_error")
_SIZES = ("unit", "by_class")  # of requests with a size
_LEVELS = 12  # loads of a trace that policies are made for
RUNS = 10
"""Seeds of the simulations that confirm a number of workers."""
_OTHER_SEEDS = ("--seed", "1000", "--seeds", str(RUNS))  # capacity takes 0 to 4
_LASTS, _MOST_REQUESTS = 1000.0, 2_000_000  # SLOs of a run, which begins without requests; of all
_MOST_ADDED = 8  # workers, where the first number misses the target with other seeds
_SHOWN = 5e-4  # share of a model that the verdict names
_PROCESSES = "2"
_RATES = (*FIGURES, *(f"{name}_half_width" for name in FIGURES))
_PEAK = ("busiest_tenth_effective_accuracy", "response_p99_ms", "slo_ms", "every_s", "windows",
         "windows_missed", "worst_window_accuracy", "worst_window_violation_rate")
_GROWN = ("workers", "workers_bound", *FIGURES, "cost")
_PROMISED = ("expected_effective_accuracy", "expected_violation_rate")


@dataclass
class PlanRun:
    """A plan in progress: inputs, and the commands that were run."""

    folder: Path
    workload: Workload
    slo_ms: float
    targets: Targets
    # served, arrivals, wanted: options of commands: profile and SLO, load or trace, targets
    served: tuple[str, ...]
    arrivals: tuple[str, ...]
    wanted: tuple[str, ...]
    queues: tuple[str, ...] = ("central-queue", "round-robin")  # dispatch that is compared
    commands: list[str] = field(default_factory=list)  # as a shell takes them
    notes: set[str] = field(default_factory=set)  # lines of these commands that were passed on
    suffix: str = ""  # of the files, which differ by the growth of the load

    # for --dry-run: seconds for a policy, requests that are simulated in a second
    each_policy_s: ClassVar[float] = 0.4
    requests_each_s: ClassVar[float] = 2e6

    @property
    def loads_qps(self) -> tuple[float, ...]:
        """Loads that policies are made for."""
        return fleet_scheduler(f"round-robin:levels={_LEVELS}").loads_for(self.workload)

    @property
    def constant(self) -> bool:
        """Whether the load is constant, so that figures are those of the steady state."""
        return isinstance(self.workload, ConstantLoad)

    @property
    def run_ms(self) -> float:
        """Duration of a simulated run; a trace is simulated once in full.

        At a constant load all runs together have some 50 violations at the rate that is allowed,
        and each is long beside the time that queues take to fill.
        """
        least_ms = self.workload.duration_ms
        if not self.constant:
            return least_ms
        rate = RUNS * (self.workload.load_qps or 0.0) / 1000.0
        events_ms = FEW_VIOLATIONS / (max(self.targets.max_violation, 1e-12) * rate)
        return max(least_ms, min(max(events_ms, _LASTS * self.slo_ms), _MOST_REQUESTS / rate))

    @property
    def options(self) -> list[str]:
        """Command-line options of the plan: cluster, arrivals, targets and cascades."""
        return [*self.served, *self.arrivals, *self.wanted,
                *(["--cascades"] if CASCADES in self.queues else [])]

    def scheduler(self, dispatch: str) -> str:
        """Return the ``--scheduler`` value for policies by dispatch."""
        return f"{dispatch}:levels={_LEVELS}" if self.workload.varies else dispatch

    @property
    def search(self) -> list[str]:
        """Command that finds the fewest workers for the plan."""
        return self.search_of(self.queues, self.arrivals)

    def search_of(self, dispatches: Iterable[str], arrivals: Sequence[str]) -> list[str]:
        """Return the command that finds the fewest workers for some arrivals."""
        return ["capacity", *self.served, *arrivals, *self.wanted,
                *(word for queue in dispatches for word in ("--scheduler", self.scheduler(queue))),
                "--processes", _PROCESSES, "--keep", "searches", "--json"]

    def grown(self, factor: float) -> list[str]:
        """Return the options of the load or trace with the load multiplied."""
        option = "--load" if self.constant else "--scale"
        before = 1.0
        options = list(self.arrivals)
        if option in options:
            at = options.index(option)
            before = float(options[at + 1])
            del options[at:at + 2]
        return [*options, option, exact(before * factor)]

    def played(self, workers: int, *what: str) -> list[str]:
        """Return the command that simulates the plan's policies with further seeds."""
        lasting = ("--duration-s", exact(float(f"{self.run_ms / 1000.0:.4g}")))
        return ["simulate", *self.served, "--workers", str(workers), *self.arrivals,
                *(lasting if self.run_ms > self.workload.duration_ms else ()), *what,
                # At a constant load the promise decides, which a mean may miss by chance.
                *(() if self.constant else self.wanted), *_OTHER_SEEDS, "--json"]

    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Make the folder, or go on with the plan that it holds."""
        asked = {**inputs, "options": self.options}
        make_folder(self.folder)
        self._file = self.folder / "plan.json"
        self._document: dict[str, Any] = {"format": "ramsis.plan/1", "inputs": asked}
        if self._file.exists():
            before = read_json(self._file).get("inputs")
            if before != asked:
                raise InvalidValueError("the folder holds the plan of other inputs", where="--out",
                                        value=str(self.folder), allowed="another folder")
        else:
            write_atomic(self._file, canonical_json(self._document))

    def run(
        self, cost_per_worker: float | None, growth: Mapping[float, Workload]
    ) -> dict[str, Any]:
        """Run all steps, write ``plan.json``, and return its document.

        ``growth`` has the workload of each multiple of the load.
        """
        best_rows = {str(row["scheduler"]).removesuffix(f":levels={_LEVELS}"): row
                     for row in self._rows("capacity", self.search, rows_at=4)}
        dispatch = min(best_rows, key=lambda name: (best_rows[name]["workers"],
                                                    -best_rows[name]["effective_accuracy"]))
        # Confirm the fewer workers with other seeds, and simulate one worker more.
        answer, played, policies = self._enough(dispatch, best_rows[dispatch])
        best_rows[dispatch], workers = answer, answer["workers"]
        more = self.further(dispatch, workers + 1)
        worth = more["effective_accuracy"] - played["effective_accuracy"]
        verdict = {
            "workers": workers, "dispatch": dispatch,
            **{name: answer[name] for name in (*_RATES, *_PROMISED, "workers_bound")},
            "certain": answer["clear"], "upper_bound": played["upper_bound"],
            **{name: played.get(name) for name in _PEAK}, **_answered(played),
            "worth_of_one_more_worker": worth,
            "worth_half_width": math.hypot(more["effective_accuracy_half_width"],
                                           played["effective_accuracy_half_width"]),
            "cost": None if cost_per_worker is None else cost_per_worker * workers,
            "policies": policies,
            **{name: answer[name] for name in _SIZES if name in answer},
        }
        simulated = [{key: row[key] for key in (
                         *FIGURES, "workers", "upper_bound", "upper_bound_one_model")
                      if key in row} for row in (played, more)]
        rows = [{"dispatch": name,
                 **{key: row[key] for key in ("workers", "workers_bound", *_RATES, *_OPINIONS)
                    if key in row},
                 "trials": _by_workers(row["trials"], simulated if name == dispatch else ())}
                for name, row in best_rows.items()]
        now = {"growth": 1.0, "load_qps": self.workload.load_qps,
               **{name: verdict[name] for name in _GROWN},
               **{name: answer[name] for name in _OPINIONS if name in answer}}
        grown = self._growth(now, growth, dispatch, cost_per_worker) if growth else []
        report = ["report", "plan.json", policies, f"simulation-{workers}.json", "capacity.json",
                  "--out", "report.html"]
        self._document |= {"verdict": verdict, "words": _in_words(verdict, best_rows, grown),
                           "commands": [*self.commands, shlex.join(["ramsis", *report])],
                           "rows": rows, **({"growth": grown} if grown else {})}
        write_atomic(self._file, canonical_json(self._document))
        self._step(report)
        return dict(self._document)

    def _growth(
        self, now: dict[str, Any], growth: Mapping[float, Workload], dispatch: str,
        cost_per_worker: float | None,
    ) -> list[dict[str, Any]]:
        """Return the fewest workers for each multiple of the load, confirmed as the plan's are."""
        rows: list[dict[str, Any]] = []
        for factor in sorted({*growth, 1.0}):
            if factor == 1.0:
                rows.append(now)
                continue
            recipe = replace(self, workload=growth[factor], arrivals=tuple(self.grown(factor)),
                             suffix=f"-growth-{exact(factor)}")
            (row,) = recipe._rows(f"capacity{recipe.suffix}",
                                  recipe.search_of([dispatch], recipe.arrivals))
            # A larger load needs no fewer workers, whatever chance says of two close ones.
            fewest = max([row["workers"], *(each["workers"] for each in rows)])
            answer, _, _ = recipe._enough(dispatch, row, fewest)
            rows.append({"growth": factor, "load_qps": row["load_qps"],
                         **{name: answer[name] for name in (*_GROWN, *_OPINIONS)
                            if name != "cost" and name in answer},
                         "cost": None if cost_per_worker is None
                         else cost_per_worker * answer["workers"]})
        return rows

    def _enough(
        self, dispatch: str, row: Mapping[str, Any], fewest: int = 1
    ) -> tuple[dict[str, Any], dict[str, Any], str]:
        """Add workers to those of a search, from ``fewest`` on, until other seeds confirm them.

        Return the row of the search with these workers and their figures, the simulation with
        other seeds, and the folder of policies.
        """
        first = workers = max(row["workers"], fewest)
        while True:
            played, policies = self.confirmed(dispatch, workers)
            seen = self.trial(played)
            met = seen.met and not played.get("windows_missed")
            if met or (self.constant and not seen.clear):
                break
            if workers == first + _MOST_ADDED:
                raise InfeasibleError(
                    "the target is not met with other seeds", where=dispatch,
                    value=f"{workers} workers, {played['violation_rate']:.4%} violations, "
                    f"{played['effective_accuracy']:.4f} "
                    + effective_words(played["accuracy"]),
                    allowed="a target that leaves some room")
            workers += 1
        if workers == row["workers"] and self.constant:
            return dict(row), played, policies  # the promise is more exact than a simulation
        certain = seen.clear and (workers > row["workers"] or row["clear"])
        figures = {name: played[name] for name in (*_RATES, *_PROMISED, *_OPINIONS, *_SIZES)
                   if name in played}
        return {**row, "workers": workers, "clear": certain, **figures}, played, policies

    def making_for_loads(self, workers: int) -> list[str]:
        """Return the beginning of the command that makes policies for some workers."""
        return ["generate", *self.served, "--workers", str(workers), "--load",
                ",".join(exact(load) for load in self.loads_qps)]

    @property
    def process(self) -> tuple[str, ...]:
        """Option of the arrival process; empty unless one was named."""
        if "--arrivals" not in self.arrivals:
            return ()
        at = self.arrivals.index("--arrivals")
        return self.arrivals[at:at + 2]

    def making(self, dispatch: str, workers: int, policies: str) -> list[str]:
        """Return the command that makes policies for some workers."""
        return [*self.making_for_loads(workers), *(self.process if self.constant else ()),
                *dispatch_words(dispatch), "--processes", _PROCESSES, "--out", policies, "--json"]

    def trial(self, played: Mapping[str, Any]) -> Trial:
        """Hold the row of a simulation against the targets."""
        return Trial(played["workers"], None, MeasuredRates.of_row(played), self.targets)

    def further(self, dispatch: str, workers: int) -> Mapping[str, Any]:
        """Simulate some workers with other seeds, and return the row."""
        (row,) = self._rows(f"simulation-{workers}", self.played(
            workers, "--scheduler", self.scheduler(dispatch)))
        return row

    def confirmed(self, dispatch: str, workers: int) -> tuple[dict[str, Any], str]:
        """Simulate policies for some workers with other seeds; return figures and folder."""
        policies = f"policies{self.suffix}-{workers}"
        level, *_ = self._rows(f"levels{self.suffix}-{workers}",
                               self.making(dispatch, workers, policies),
                               output=f"{policies}/manifest.json")
        (row,) = self._rows(f"simulation{self.suffix}-{workers}",
                            self.played(workers, "--policy", policies))
        if row["upper_bound"] is None and self.constant:  # of more requests than are bounded
            row["upper_bound"] = level["upper_bound"]
        if dispatch == CASCADES:  # without any where they do not pay
            row |= dict.fromkeys(_OPINIONS, 0.0) | {
                name: level[name] for name in _OPINIONS if name in level}
        return row, policies

    def _rows(
        self, name: str, command: list[str], rows_at: int = 0, output: str = "."
    ) -> list[dict[str, Any]]:
        """Return a command's rows, taken from an earlier run of the same command if there is one.

        For ``rows_at`` see :meth:`_step`; ``output`` is what the command writes besides, without
        which it is run again.
        """
        file = self.folder / f"{name}.json"
        kept = read_json(file) if file.exists() else {}
        command_text = shlex.join(["ramsis", *command])
        if kept.get("command") == command_text and (self.folder / output).exists():
            self.commands.append(f"{command_text} > {file.name}")
            document = kept
        else:
            text = self._step(command, file.name, rows_at)
            write_atomic(file, text)
            document = json.loads(text)
        rows: list[dict[str, Any]] = document["rows"]
        return rows

    def _step(self, command: list[str], file: str | None = None, rows_at: int = 0) -> str:
        """Run a command in the folder and return its stdout.

        Exit code ``rows_at`` is no failure where there is output. Any other but 0 ends the plan.
        """
        command_text = shlex.join(["ramsis", *command])
        click.echo(f"$ {command_text}", err=True)
        done = run_with_bar([sys.executable, "-P", "-m", "ramsis", *command], command[0],
                            self.folder)
        if done.returncode not in (0, rows_at if done.stdout else 0):
            click.echo(done.stderr.strip(), err=True)
            raise click.exceptions.Exit(done.returncode if done.returncode > 0 else 1)
        for line in done.stderr.splitlines():
            if line not in self.notes:  # each command says how it read the trace
                click.echo(line.replace("error: ", "note: ", 1), err=True)
            self.notes.add(line)
        self.commands.append(command_text if file is None else f"{command_text} > {file}")
        return done.stdout


def _by_workers(*rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return trials by number of workers; of equal numbers the last."""
    keys = ("workers", *FIGURES, "upper_bound")
    by_workers = {
        row["workers"]: {**{key: row.get(key) for key in keys},
                         **({"upper_bound_one_model": row["upper_bound_one_model"]}
                            if "upper_bound_one_model" in row else {})}
        for group in rows for row in group if "accuracy" in row}
    return [by_workers[workers] for workers in sorted(by_workers)]


def _in_words(
    verdict: Mapping[str, Any], best_rows: Mapping[str, Mapping[str, Any]],
    grown: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the verdict in three lines, and one each for second opinions, windows and growth."""
    workers = verdict["workers"]
    others = "".join(f"{row['workers']} with {QUEUES[name]}; " for name, row in best_rows.items()
                     if name != verdict["dispatch"])
    cost = "" if verdict["cost"] is None else f", at a cost of {verdict['cost']:g}"
    worth, error = verdict["worth_of_one_more_worker"], verdict["worth_half_width"]
    words = effective_words(verdict["accuracy"])
    certain = "" if verdict["certain"] is not False else (
        ", but not certainly: the figures are too near to the target for their error")
    late, late_error = (100.0 * verdict[name] for name in (
        "violation_rate", "violation_rate_half_width"))
    peak = verdict["busiest_tenth_effective_accuracy"]
    tail = f"p99 {verdict['response_p99_ms']:.4g} ms of {verdict['slo_ms']:g}"
    return [
        f"{workers} worker{'s' if workers > 1 else ''} with {QUEUES[verdict['dispatch']]} "
        f"{'are' if workers > 1 else 'is'} enough{cost} ({others}lower bound "
        f"{verdict['workers_bound']}){certain}",
        with_error(verdict["effective_accuracy"], verdict["effective_accuracy_half_width"])
        + f" {words}{'' if peak is None else f' ({peak:.4f} in the busiest tenth)'}, "
        f"{with_error(late, late_error)} % violations, {tail}",
        *_opinion_words(verdict),
        *([] if verdict["windows"] is None else [
            f"the target holds in each of {verdict['windows']} windows of "
            f"{verdict['every_s']:g} s; in the worst, accuracy "
            f"{verdict['worst_window_accuracy']:.4f} with "
            f"{verdict['worst_window_violation_rate']:.4%} violations"]),
        f"one more worker is worth {with_error(worth, error)} of "
        + words.replace("answered", "the share answered")
        + ("" if verdict["upper_bound"] is None else
           f"; no scheduler with {bounded_schedulers(verdict)} passes "
           f"{verdict['upper_bound']:.4f}"),
        *_growth_words(grown),
    ]


def _answered(played: Mapping[str, Any]) -> dict[str, Any]:
    """Return second opinions, their bound, and which models answered; empty without any."""
    if not played.get("second_opinions"):
        return {}
    return {name: played[name] for name in (*_OPINIONS, "upper_bound_one_model", "model_share")}


def _opinion_words(verdict: Mapping[str, Any]) -> list[str]:
    """Return a line on second opinions, their gain, and which models answered."""
    if "gain" not in verdict:
        return []
    shares = sorted(verdict["model_share"].items(), key=lambda item: -item[1])
    answered = ", ".join(f"{name} {share:.1%}" for name, share in shares if share >= _SHOWN)
    return [f"{verdict['second_opinions']:.1%} of the requests get a second opinion, which adds "
            f"{with_error(verdict['gain'], verdict['gain_error'])} (standard error) of effective "
            f"accuracy; answered by {answered}"]


def _growth_words(grown: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the workers, and costs, for each larger or smaller load as one line."""
    needs = []
    for row in grown:
        if row["growth"] != 1.0:
            cost = "" if row["cost"] is None else f" ({row['cost']:g})"
            needs.append(f"{row['workers']} at {row['growth']:g} times the load{cost}")
    return [f"workers{'' if grown[0]['cost'] is None else ' (and cost)'} as the load grows: "
            + ", ".join(needs)] if needs else []


def exact(value: float) -> str:
    """Format a number with the fewest digits that round-trip."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
