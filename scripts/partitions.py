"""The fewest GPUs for scenarios of models on instances of a GPU, with proof.

python scripts/partitions.py --profiles CSV --scenarios CSV --json FILE
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import parser_of

from placement_milp import (
    Family,
    Limits,
    Placement,
    PlacementObjective,
    Problem,
    Rules,
    Variant,
    place,
)
from placement_milp.io import instance_latencies, with_instance_profile
from placement_milp.partitions import shipped_partitions
from placement_milp.problem import Latency, WorkerType
from placement_milp.queueing import responses_ms
from placement_milp.result import Group
from ramsis.errors import (
    InfeasibleError,
    InputFileError,
    NotConvergedError,
    RamsisError,
)
from ramsis.files import canonical_json, write_atomic
from ramsis.profiles.importers.instances import read_instance_profile
from ramsis.profiles.importers.rows import read_rows
from ramsis.synthesis.placement.stations import placed_stations, station_fleet

_SCENARIOS = ("scenario", "model", "slo_ms", "rate_rps")
_DESCRIPTION = """\
For each scenario find the fewest GPUs of one type, cut into instances, on which every model's
requests are served by batches that are in time, and write a row for each: GPUs, the bound below
which no plan can be, seconds, and the plan. A batch is in time if its latency is below
--latency-share times the SLO.

With --queues each plan is played, too: Poisson arrivals, instances as workers, processes as lanes.
For each model whose 99th percentile is not within the SLO, with true latencies or with longer
ones, the rate that the plan is made for is raised by 1 %, until all are. Beside it stands a plan
that counts on queueing.
"""
_LONGER = 0.05
"""Share by which latencies may be longer."""
_PLANNED_LONGER = 0.07
"""What the plan that counts on queueing is made for: more, since p99 is measured on arrivals that
differ, and grows steeply near a full load."""
_MOST_RAISED = 1.5
_QUEUES_LINE = (
    "  in time by p99: the rule's plan {rule_raised_gpus} GPUs at rates up to x {most:g}, "
    "counting on queueing {queue_aware_gpus}, p99 {p99_share:.2f} of the SLO, "
    "{p99_share_longer:.2f} with longer latencies")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of(_DESCRIPTION)
    parser.add_argument("--profiles", required=True, type=Path,
                        help="profile of instances: CSV file, or folder of ParvaGPU's files")
    parser.add_argument("--scenarios", required=True, type=Path,
                        help="CSV file with the columns " + ", ".join(_SCENARIOS))
    parser.add_argument("--json", required=True, type=Path, help="file of the rows")
    parser.add_argument("--gpu", default="A100-80GB", choices=tuple(shipped_partitions()),
                        help="what the profile was measured on; A100-80GB if not given")
    parser.add_argument("--latency-share", type=float, default=0.45,
                        help="share of the SLO that a batch has to stay below")
    parser.add_argument("--max-processes", type=int, default=3,
                        help="processes side by side on an instance, at most")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS",
                        help="for one scenario")
    parser.add_argument("--queues", action="store_true", help="play plans, and count on queueing")
    parser.add_argument("--play-s", type=float, default=60.0, help="of arrivals in each of two "
                        "runs of a plan")
    return parser.parse_args(given)


def read_scenarios(path: Path) -> dict[str, list[Family]]:
    """The families of each scenario."""
    table = read_rows(path)
    table.require(_SCENARIOS, _SCENARIOS)
    found: dict[str, dict[str, Family]] = {}
    for row in table.rows:
        families = found.setdefault(row.text("scenario"), {})
        model = row.text("model")
        if model in families:
            raise InputFileError("model stands twice in a scenario", value=model,
                                 where=row.at("model"))
        families[model] = Family(model, row.positive("rate_rps"), row.positive("slo_ms"))
    return {name: list(families.values()) for name, families in found.items()}


def problem_of(
    name: str, families: Sequence[Family], gpu: WorkerType,
    latencies: dict[str, tuple[Latency, ...]], share: float, where: str,
) -> Problem:
    """The placement problem of a scenario, with as many GPUs as can be needed."""
    for family in families:
        if family.name not in latencies:
            raise InputFileError("model is not in the profile", where=where, value=family.name,
                                 allowed=", ".join(latencies))
    all_variants = with_instance_profile((), [family.name for family in families], latencies)
    variants = tuple(_in_time(variant, family, share)
                     for variant, family in zip(all_variants, families, strict=True))
    # Each model on GPUs of its own, one instance on each.
    most = sum(math.ceil(family.demand_qps / max(e.throughput_qps for e in variant.latency))
               for family, variant in zip(families, variants, strict=True))
    return Problem(name, tuple(families), (replace(gpu, count=most),), variants,
                   PlacementObjective("fewest-workers"), Rules(latency_share_of_slo=share))


def _in_time(variant: Variant, family: Family, share: float) -> Variant:
    """The variant with its batches that stay below the share of the SLO."""
    limit_ms = round(share * family.slo_ms, 9)  # decimal numbers, as the files have them
    kept = tuple(entry for entry in variant.latency if round(entry.latency_ms, 9) < limit_ms)
    if not kept:
        shortest = min(entry.latency_ms for entry in variant.latency)
        raise InfeasibleError("no instance meets the SLO", where=f"model {family.name}",
                              value=f"{family.slo_ms:g} ms",
                              allowed=f"above {shortest / share:g} ms (shortest "
                              f"latency {shortest:g} ms, share {share:g})")
    return replace(variant, latency=kept)


def plan_of(placement: Placement, seconds: float) -> dict[str, Any]:
    return {
        "gpus": placement.workers_in_use, "bound": placement.dual_bound,
        "seconds": seconds, "status": placement.status,
        "layouts": {gpu.gpu: list(gpu.instances) for gpu in placement.gpus},
        "instances": [{"worker": worker, "model": use.family, "batch": use.batch,
                       "processes": use.processes, "rate_rps": use.rate_qps,
                       "load_rps": use.load_qps}
                      for group in placement.groups for use in group.uses
                      for worker in group.workers],
    }


def p99_shares(
    problem: Problem, groups: Sequence[Group], longer: float, play_s: float
) -> dict[str, float]:
    """By model, the 99th percentile as a share of its SLO, the larger one of two runs."""
    shares: dict[str, float] = {}
    for seed in range(2):
        found: dict[str, list[NDArray[np.float64]]] = {}
        for number, station in enumerate(placed_stations(problem, groups)):
            rng = np.random.default_rng((seed, number))
            times = [np.sort(rng.uniform(0.0, 1000.0 * play_s, rng.poisson(
                use.load_qps * play_s))) for use in station.uses]
            table = station_fleet(station, station.max_batch).table.latency_ms
            table = (1.0 + longer) * np.concatenate([np.zeros((len(table), 1)), table], axis=1)
            begin = np.concatenate([[0], np.cumsum([len(one) for one in times])])
            response = responses_ms(
                np.concatenate(times), begin, len(station.workers),
                np.array([use.batch for use in station.uses], dtype=np.int64), table)
            for use, first, end in zip(station.uses, begin, begin[1:], strict=False):
                found.setdefault(use.family.name, []).append(response[first:end])
        for name, parts in found.items():
            share = float(np.quantile(np.concatenate(parts), 0.99)) / problem.family(name).slo_ms
            shares[name] = max(shares.get(name, 0.0), share)
    return shares


def raised(
    problem: Problem, play_s: float, limits: Limits
) -> tuple[Placement, dict[str, float]]:
    """The plan for rates that are raised until all models meet p99, and by what factors."""
    factors = {family.name: 1.0 for family in problem.families}
    while max(factors.values()) < _MOST_RAISED:
        more = replace(problem, families=tuple(
            replace(family, demand_qps=factors[family.name] * family.demand_qps)
            for family in problem.families))
        placement = place(more, limits)
        groups = tuple(replace(group, uses=tuple(
            replace(use, load_qps=use.load_qps / factors[use.family]) for use in group.uses))
            for group in placement.groups)
        missing = {name for longer in (0.0, _LONGER) for name, share in p99_shares(
            problem, groups, longer, play_s).items() if share > 1.0}
        if not missing:
            return placement, factors
        for name in missing:
            factors[name] = round(factors[name] + 0.01, 2)
    raise NotConvergedError("no plan meets p99", where=problem.name,
                            value=f"rates raised by {max(factors.values()):g}")


def queues_row(
    problem: Problem, latencies: dict[str, tuple[Latency, ...]], given: argparse.Namespace
) -> dict[str, Any]:
    """GPUs of the rule's plan at raised rates, and of the plan that counts on queueing."""
    limits = Limits(seconds=given.time_limit)
    (gpus,) = problem.worker_types  # raised rates, and rates with queues, can need more of them
    problem = replace(problem, worker_types=(
        replace(gpus, count=2 * gpus.count + len(problem.families)),))
    rule, factors = raised(problem, given.play_s, limits)
    start = time.perf_counter()
    variants = with_instance_profile((), [family.name for family in problem.families], latencies)
    aware = replace(problem, variants=variants, rules=Rules(
        in_time_quantile=0.99, headroom=_PLANNED_LONGER))
    found = place(aware, limits)
    return {"rule_raised_gpus": rule.workers_in_use, "raised_by": factors,
            "queue_aware_gpus": found.workers_in_use, "queue_aware_bound": found.dual_bound,
            "queue_aware_seconds": time.perf_counter() - start,
            "p99_share": max(p99_shares(aware, found.groups, 0.0, given.play_s).values()),
            "p99_share_longer": max(
                p99_shares(aware, found.groups, _LONGER, given.play_s).values())}


def rows_of(given: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """A row for each scenario, and the exit code of the first that has no plan, or 0."""
    table = shipped_partitions()[given.gpu]
    if not 0 < given.latency_share <= 1 or given.max_processes < 1:
        raise InputFileError("no batch can be in time",
                             value=(given.latency_share, given.max_processes),
                             allowed="--latency-share in (0, 1], --max-processes >= 1")
    gpu = WorkerType("gpu", 0, max(kind.memory_mb for kind in table.instances), partitions=table)
    latencies = instance_latencies(read_instance_profile(given.profiles), gpu,
                                   max_processes=given.max_processes, where=str(given.profiles))
    rows, code = [], 0
    for scenario, families in read_scenarios(given.scenarios).items():
        start = time.perf_counter()
        row: dict[str, Any] = {"scenario": int(scenario) if scenario.isdecimal() else scenario}
        rows.append(row)
        try:
            problem = problem_of(scenario, families, gpu, latencies, given.latency_share,
                                 f"{given.scenarios}: scenario {scenario}")
            placement = place(problem, Limits(seconds=given.time_limit))
            row |= plan_of(placement, time.perf_counter() - start)
            print(f"scenario {scenario}: {row['gpus']} GPUs, at least {row['bound']:g}, "
                  f"{placement.status}, {row['seconds']:.2f} s", flush=True)
            if given.queues:
                row |= queues_row(problem, latencies, given)
                print(_QUEUES_LINE.format(**row, most=max(row["raised_by"].values())), flush=True)
        except (InfeasibleError, NotConvergedError) as error:  # the other scenarios have plans
            none = {"gpus": None, "bound": None, "seconds": time.perf_counter() - start, "status":
                    "infeasible" if isinstance(error, InfeasibleError) else "unsolved"}
            row |= {**none, **row, "reason": str(error)}
            print(f"error: scenario {scenario}: {error}", file=sys.stderr, flush=True)
            code = code or error.exit_code
    return rows, code


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    try:
        rows, code = rows_of(given)
        write_atomic(given.json, canonical_json({
            "gpu": given.gpu, "latency_share": given.latency_share,
            "max_processes": given.max_processes, "rows": rows}))
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
