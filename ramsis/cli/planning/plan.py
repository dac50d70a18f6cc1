"""``ramsis plan``: from a profile, a load and a target to workers, policies and a verdict.

A recipe over other commands. Each runs in a process of its own, in the folder of the plan, which
keeps what it prints: a plan that was cut short goes on where it was, and every command can be run
again by hand.

1. `capacity` finds the fewest workers with a common queue, and with a queue each. At a constant
   load the policies' promise decides, as exactly as it has to be known.
2. `generate` makes the policies for the fewer of the two.
3. `simulate` plays them with seeds that nothing was chosen by. Where they miss the target on a
   trace, or clearly at a constant load, a worker is added, and step 2 comes again.
4. `simulate` plays policies for one worker more: what that worker is worth.
5. `report` writes a page about all of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import click

from ramsis.arrivals import Arrivals
from ramsis.arrivals.recorded import PROCESS as TRACE
from ramsis.bounds import Targets
from ramsis.cli.options.clusters import profiles_of
from ramsis.cli.options.command import (
    MORE_ARRIVALS,
    Command,
    given_options,
    refuse_options,
)
from ramsis.cli.options.dispatch import dispatch_words
from ramsis.cli.options.param_types import GROWTH, OUT_FOLDER, PROFILES, SLOS, ByType, TraceName
from ramsis.cli.options.shared import (
    min_in_time_option,
    plot_option,
    simulated_service_option,
    sizes_options,
    target_options,
    workload_options,
)
from ramsis.cli.options.sizes import SizedInputs, workload_of_sizes
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import Column, json_option, print_json, print_rows, say
from ramsis.cli.output.size_classes import print_classes
from ramsis.cli.progress import run_with_bar
from ramsis.cluster import SloClass, default_service
from ramsis.cluster.service_times import DISTRIBUTION, FIXED
from ramsis.errors import InfeasibleError, InvalidValueError, check_not_negative
from ramsis.files import canonical_json, make_folder, read_json, write_atomic
from ramsis.profiles import ProfileSet
from ramsis.report.verdicts import bounded_schedulers
from ramsis.sim import ConstantLoad, Fleet, RateTrace, Recorded, Workload, check_load
from ramsis.sim.result import FEW_VIOLATIONS
from ramsis.synthesis.capacity import (
    FIGURES,
    MOST_WORKERS,
    MeasuredRates,
    Trial,
    fewest_by_bound,
    whole_workers,
)
from ramsis.synthesis.schedulers import fleet_scheduler
from ramsis.tables import effective_words, scheduler_words, with_error

_CASCADES = "central-queue:cascades=true"
_QUEUES = {"central-queue": "a common queue", "round-robin": "a queue each",
           _CASCADES: "a common queue and second opinions"}
"""The kinds of dispatch that are compared, and what a verdict calls them."""
_OPINIONS = ("second_opinions", "gain", "gain_error")
_SIZES = ("unit", "by_class")  # of requests with a size
_LEVELS = 12  # loads of a trace that policies are made for
_RUNS = 10
_OTHER_SEEDS = ("--seed", "1000", "--seeds", str(_RUNS))  # capacity takes 0 to 4
_LASTS, _MOST_REQUESTS = 1000.0, 2_000_000  # SLOs of a run, which begins without requests; of all
_MOST_ADDED = 8  # workers, where the first number misses the target with other seeds
_FEWEST_REQUESTS = 10  # in a run
_SHOWN = 5e-4  # share of a model that the verdict names
_PROCESSES = "2"
_SECONDS_TO_START = 25.0  # for --dry-run
_RATES = (*FIGURES, *(f"{name}_half_width" for name in FIGURES))
_PEAK = ("busiest_tenth_effective_accuracy", "response_p99_ms", "slo_ms", "every_s", "windows",
         "windows_missed", "worst_window_accuracy", "worst_window_violation_rate")
_GROWN = ("workers", "workers_bound", *FIGURES, "cost")
_PROMISED = ("expected_effective_accuracy", "expected_violation_rate")
_COLUMNS = (
    Column("dispatch", "dispatch"),
    Column("workers", "workers", "d"),
    Column("workers_bound", "lower bound", "d"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%"),
    Column("violation_rate_half_width", "± (95 %)", ".4%"),
)
_OF_OPINIONS = (
    Column("second_opinions", "second opinions", ".1%"),
    Column("gain", "gain by them", ".4f"),
)
_GROWTH = (
    Column("growth", "growth", "g"),
    Column("load_qps", "load (QPS)", ".6g"),
    Column("workers", "workers", "d"),
    Column("cost", "cost", "g"),
    Column("workers_bound", "lower bound", "d"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
)


@click.command("plan", cls=Command, more=(
    "--cascades", "--every", "--growth", "--sizes", "--size-column", "--min-in-time-by-class",
    "--service", "--plot", *MORE_ARRIVALS))
@click.option("--profiles", "profile_names", type=PROFILES, required=True, metavar="FILE|NAME",
              help="Profile file, or the name of a shipped profile set.")
@click.option("--slo-ms", "classes", type=SLOS, required=True, metavar="MS",
              help="Deadline after arrival, in ms.")
@target_options
@click.option("--cascades", is_flag=True,
              help="Also plan with second opinions: a second model is asked where the first is "
                   "unsure.\nThe profile needs confidences.")
@click.option("--cost-per-worker", type=float, metavar="C",
              help="Cost of a worker, in any unit, which adds the cost to the result.")
@click.option("--growth", type=GROWTH, metavar="F,...",
              help="Further factors on the load to find the workers for, such as 1.5,2.")
@click.option("--out", required=True, metavar="DIR", type=OUT_FOLDER,
              help="Folder for the plan, or with an interrupted one, which continues.")
@partial(workload_options, several=False)
@sizes_options
@min_in_time_option
@simulated_service_option
@click.option("--dry-run", is_flag=True,
              help="Only print the steps and an estimate of their time.")
@plot_option("accuracy over the number of workers, with target and bound")
@json_option
@click.pass_context
def plan(
    context: click.Context,
    profile_names: ByType[str],
    classes: tuple[SloClass, ...],
    min_accuracy: float | None,
    min_effective_accuracy: float | None,
    max_violation: float,
    every_ms: float | None,
    cascades: bool,
    cost_per_worker: float | None,
    growth: tuple[float, ...] | None,
    out: Path,
    workload: WorkloadOptions,
    sizes: Path | None,
    size_column: str | None,
    min_in_time_by_class: tuple[float, ...] | None,
    service: str | None,
    dry_run: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Plan workers and policies for a load and a target.

    The verdict has the fewest workers, their performance in simulation with fresh seeds, the bound
    for every scheduler that answers each request by one model, and the value of one more worker.
    With --cascades it also has the workers with second opinions, how many requests get one, what
    that adds, which models answer, and the bound for schedulers with cascades.

    With --sizes, or a trace with sizes, requests have a size: the policies decide which of those
    that wait are a batch, and the verdict has the share in time of each size class.

    Writes the policies, the simulations, report.html, and plan.json with the executed commands to
    DIR.

    If no number of workers meets the target, the command reports the best attainable and ends
    with exit code 4.

    \b
    Examples:
      $ ramsis plan --profiles digits-cpu --load 1000 --slo-ms 25 --min-accuracy 0.95 \\
          --out plan --dry-run
      $ ramsis plan --profiles digits-cpu --trace day --slo-ms 25 \\
          --min-effective-accuracy 0.94 --out plan2 --dry-run
    """
    workload.check(every_ms)
    if workload.loads is not None and len(workload.loads) > 1:
        raise click.UsageError("--load is one number here; --trace has loads that change.")
    check_not_negative("not a cost", cost_per_worker=cost_per_worker or 0.0)
    if profile_names.typed or len(classes) > 1:
        raise click.UsageError("A plan is for one profile and one SLO: see `ramsis capacity` for "
                               "several.")
    targets = Targets(max_violation, min_accuracy, min_effective_accuracy, every_ms)
    profile = profiles_of(profile_names, None)[profile_names.one]
    slo_ms = classes[0].slo_ms
    served = ("--profiles", _from_anywhere(profile_names.one), "--slo-ms", _exact(slo_ms))
    wanted = _words({"--min-accuracy": min_accuracy, "--max-violation": max_violation,
                     "--min-effective-accuracy": min_effective_accuracy})
    arrivals = _arrival_words(context)
    inputs = {"profile": profile.fingerprint, "trace": _digest(workload)}
    bound: Callable[[Workload], float]
    sized = workload_of_sizes(sizes, size_column, workload, profile_names)
    if sized is not None:
        from ramsis.cli.planning.sized_capacity import SizedCapacity
        from ramsis.cli.planning.sized_plan import SizedPlanRun
        from ramsis.sized.capacity import fewest_by_bound_of_sizes
        from ramsis.sized.schedulers import POLICY
        from ramsis.sized.search import class_shares

        asked = SizedCapacity.of(
            SizedInputs.of(profile_names, None, 0.0, classes, None, sizes, size_column, sized),
            (POLICY,), targets, min_in_time_by_class, range(5), service)
        (played,) = asked.inputs.workloads
        bound = partial(fewest_by_bound_of_sizes, asked.problem, targets=targets,
                        min_in_time_by_class=min_in_time_by_class)
        shares = class_shares(asked.problem, min_in_time_by_class)
        column = () if size_column is None else ("--size-column", size_column)
        of_sizes = () if sizes is None else ("--sizes", _from_anywhere(str(sizes)), *column)
        inputs["problem"] = asked.problem.fingerprint
        recipe: PlanRun = SizedPlanRun(
            folder=out, workload=played, slo_ms=slo_ms, targets=targets, wanted=wanted,
            served=(*served, *(() if service is None else ("--service", service))),
            arrivals=(*arrivals, *(of_sizes or column)), sizes=of_sizes,
            by_class=() if min_in_time_by_class is None else (
                "--min-in-time-by-class", ",".join(map(_exact, min_in_time_by_class))),
            shares=None if shares is None else shares.tolist())
    else:
        refuse_options(("min_in_time_by_class",), "needs requests with a size: --sizes.")
        _say_largest(profile, profile_names.one)
        # Named where it is no default, so that each command does not note it again.
        chosen = service or default_service(profile)
        named = service is not None or chosen not in (DISTRIBUTION, FIXED)
        fleet = Fleet.of(profile, workers=MOST_WORKERS, slo_ms=slo_ms, service=chosen)
        (played,) = workload.workloads(fleet)
        bound = partial(_checked_bound, fleet, profile, targets=targets, slo_ms=slo_ms,
                        service=chosen, cascades=cascades)
        recipe = PlanRun(
            folder=out, workload=played, slo_ms=slo_ms, targets=targets,
            served=(*served, *(("--service", chosen) if named else ())), arrivals=arrivals,
            wanted=(*wanted, *(() if every_ms is None else ("--every", f"{_exact(every_ms)}ms"))),
            queues=tuple(name for name in _QUEUES if cascades or name != _CASCADES))
    if workload.loads is None:
        _check_requests(played)
    least = whole_workers(bound(played))
    grown = {factor: _grown(factor, played, bound) for factor in growth or ()}
    if dry_run:
        _say_what(recipe, least)
        return
    recipe.begin(inputs)
    plan_result = recipe.run(cost_per_worker, grown)
    if plot is not None:
        from ramsis.report.page.plans import plot_plan

        plot_plan(plan_result, plot)
    if as_json:
        print_json(plan_result.pop("rows"), **plan_result)
        return
    for line in plan_result["words"]:
        say(line)
    click.echo()
    print_rows((*_COLUMNS, *(_OF_OPINIONS if cascades else ())), [
        {**row, "dispatch": scheduler_words(row["dispatch"])} for row in plan_result["rows"]])
    if "by_class" in plan_result["verdict"]:
        print_classes(_COLUMNS[:2], [plan_result["verdict"]], plan_result["verdict"]["unit"])
    click.echo()
    if growth:
        print_rows(_GROWTH, plan_result["growth"])
        click.echo()
    say(f"{out}: {plan_result['verdict']['policies']}, report.html, and plan.json with the "
        f"{len(plan_result['commands'])} commands that were run there")


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
        rate = _RUNS * (self.workload.load_qps or 0.0) / 1000.0
        events_ms = FEW_VIOLATIONS / (max(self.targets.max_violation, 1e-12) * rate)
        return max(least_ms, min(max(events_ms, _LASTS * self.slo_ms), _MOST_REQUESTS / rate))

    @property
    def options(self) -> list[str]:
        """What was asked for, as options of commands."""
        return [*self.served, *self.arrivals, *self.wanted,
                *(["--cascades"] if _CASCADES in self.queues else [])]

    def scheduler(self, dispatch: str) -> str:
        """Return the ``--scheduler`` value for policies by dispatch."""
        return f"{dispatch}:levels={_LEVELS}" if self.workload.varies else dispatch

    @property
    def search(self) -> list[str]:
        """The command that finds the fewest workers."""
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
        return [*options, option, _exact(before * factor)]

    def played(self, workers: int, *what: str) -> list[str]:
        """Return the command that simulates with further seeds."""
        lasting = ("--duration-s", _exact(float(f"{self.run_ms / 1000.0:.4g}")))
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
                             suffix=f"-growth-{_exact(factor)}")
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

        Returns
        -------
        answer : dict
            The row of the search with these workers and their figures.
        played : dict
            The simulation with other seeds.
        policies : str
            The folder of policies.
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
                ",".join(_exact(load) for load in self.loads_qps)]

    def making(self, dispatch: str, workers: int, policies: str) -> list[str]:
        """Return the command that makes policies for some workers."""
        return [*self.making_for_loads(workers), *dispatch_words(dispatch), "--processes",
                _PROCESSES, "--out", policies, "--json"]

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
        if dispatch == _CASCADES:  # without any where they do not pay
            row |= dict.fromkeys(_OPINIONS, 0.0) | {
                name: level[name] for name in _OPINIONS if name in level}
        return row, policies

    def _rows(
        self, name: str, command: list[str], rows_at: int = 0, output: str = "."
    ) -> list[dict[str, Any]]:
        """Return a command's rows, taken from an earlier run of the same command if there is one.

        Parameters
        ----------
        rows_at : int
            As for :meth:`_step`.
        output : str
            What the command writes besides; without it the command is run again.
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
    found = {row["workers"]: {**{key: row.get(key) for key in keys},
                              **({"upper_bound_one_model": row["upper_bound_one_model"]}
                                 if "upper_bound_one_model" in row else {})}
             for group in rows for row in group if "accuracy" in row}
    return [found[workers] for workers in sorted(found)]


def _check_requests(workload: Workload) -> None:
    """Refuse a trace of so few requests that it shows nothing."""
    run_s = workload.duration_ms / 1000.0
    requests = (workload.load_qps or 0.0) * run_s
    if requests < _FEWEST_REQUESTS:
        raise InvalidValueError(
            "too few requests for a verdict", where="--trace",
            value=f"about {requests:.3g} in {run_s:g} s",
            allowed=f"at least {_FEWEST_REQUESTS}: a longer trace")


def _say_largest(profile: ProfileSet, name: str) -> None:
    """Note on stderr that each request counts as the largest, where models have times by size."""
    for model in profile.models:
        if model.sized is not None:
            click.echo(f"note: {name}: each request counts as the largest, of "
                       f"{model.sized.sizes[-1]} {model.sized.unit}; --sizes counts workers by "
                       "size", err=True)
            break


def _checked_bound(fleet: Fleet, profile: ProfileSet, workload: Workload, **terms: Any) -> float:
    """Bound the busy workers from below; refuse a trace that no fleet could serve."""
    if not isinstance(workload, ConstantLoad):
        check_load(fleet, workload)
    return fewest_by_bound(profile, workload, **terms)


def _grown(
    factor: float, workload: Workload, bound: Callable[[Workload], float]
) -> Workload:
    """Return a multiple of the load; refuse one that cannot be planned before anything is."""
    try:
        if isinstance(workload, ConstantLoad):
            grown: Workload = replace(workload, load_qps=workload.load_qps * factor)
        else:
            assert isinstance(workload, RateTrace | Recorded)  # all that --trace reads
            grown = workload.scaled(factor)
            _check_requests(grown)
        whole_workers(bound(grown))
        return grown
    except (InvalidValueError, InfeasibleError) as error:
        raise type(error)(f"--growth {factor:g}: {error}") from None


def _in_words(
    verdict: Mapping[str, Any], best_rows: Mapping[str, Mapping[str, Any]],
    grown: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the verdict in three lines, and one each for second opinions, windows and growth."""
    workers = verdict["workers"]
    others = "".join(f"{row['workers']} with {_QUEUES[name]}; " for name, row in best_rows.items()
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
        f"{workers} worker{'s' if workers > 1 else ''} with {_QUEUES[verdict['dispatch']]} "
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


def _say_what(recipe: PlanRun, least: int) -> None:
    """Print the steps and a rough estimate of their duration."""
    levels = len(recipe.loads_qps)
    requests = (recipe.workload.load_qps or 0.0) * recipe.run_ms / 1000.0
    tried = 4 + 2 * math.ceil(math.log2(1 + least))
    seconds = _SECONDS_TO_START + (
        tried * (levels * recipe.each_policy_s
                 + (0 if recipe.constant else 5) * requests / recipe.requests_each_s)
        + 2 * _RUNS * requests / recipe.requests_each_s)
    click.echo(f"{levels} load level{'s' if levels > 1 else ''}, {requests:,.0f} requests a run, "
               f"at least {least} worker{'s' if least > 1 else ''} by the bound; about "
               f"{seconds:.0f} s")
    click.echo(f"first {shlex.join(['ramsis', *recipe.search])}")
    click.echo("then `generate`, `simulate` twice, and `report`, for the workers that it finds")


def _words(options: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return the options that have a value, as command-line words."""
    return tuple(word for name, value in options.items() if value is not None
                 for word in (name, _exact(value)))


def _arrival_words(context: click.Context) -> tuple[str, ...]:
    """Return the load and trace options of the command, with absolute paths."""
    names = {item.name for item in fields(WorkloadOptions)}
    options: list[str] = []
    for option in given_options(context):
        if option.name in names:
            options += [option.opts[0], _word(context.params[option.name or ""])]
    return tuple(options)


def _word(value: Any) -> str:
    """Return the text of an option, files with their absolute path."""
    if isinstance(value, TraceName):
        return _from_anywhere(value.name)
    if isinstance(value, tuple):
        return ",".join(_exact(item) for item in value)
    if isinstance(value, float):
        return _exact(value)
    if isinstance(value, Arrivals) and value.name == TRACE:
        return f"{TRACE}:{_from_anywhere(dict(value.parameters)['file'])}"
    return getattr(value, "text", None) or str(value)


def _exact(value: float) -> str:
    """Format a number with the fewest digits that round-trip."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _from_anywhere(name: str) -> str:
    """Return the absolute path of a file; other names are returned unchanged."""
    path = Path(name)
    return str(path.resolve()) if path.exists() else name


def _digest(workload: WorkloadOptions) -> str | None:
    """Return a digest of the trace, so that a plan is not resumed after the trace changed."""
    if workload.trace is None:
        return None
    with workload.trace.path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
