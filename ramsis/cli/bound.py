"""``ramsis bound``: what no scheme can beat."""

from __future__ import annotations

from typing import Any

import click

from ramsis import profiles
from ramsis.bounds import fluid_bound
from ramsis.cli.mixed import MixedFleet, bound_mixed, fleet_of
from ramsis.cli.options import load_option, mixed_fleet_options
from ramsis.cli.params import ByType
from ramsis.cli.rows import Column, json_option, print_json, print_rows
from ramsis.cluster.service_times import DISTRIBUTION, ServiceTimes
from ramsis.cluster.slo_class import SloClass
from ramsis.policy import SERVICES
from ramsis.worker.problem import MAX_QUEUE

__all__ = ["bound"]

_COLUMNS = (
    Column("load_qps", "load (QPS)", "g"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("poisson_upper_bound", "Poisson", ".4f"),
    Column("served_fraction", "served", ".2%"),
    Column("capacity_qps", "capacity (QPS)", ".0f"),
    Column("worker_price", "one more worker", "+.5f"),
    Column("mix", "best mix"),
)


@click.command("bound")
@mixed_fleet_options
@load_option()
@click.option("--service", type=click.Choice(SERVICES), default=SERVICES[0],
              show_default=True,
              help="Latency statistic that service times are taken to be, or drawn from the "
                   "distribution.")
@click.option("--max-batch", type=click.IntRange(1, MAX_QUEUE), default=32, show_default=True,
              help="Largest batch.")
@json_option
def bound(
    profile_names: ByType[str],
    slo_ms: tuple[SloClass, ...],
    workers: ByType[int],
    loads: tuple[float, ...],
    service: str,
    max_batch: int,
    as_json: bool,
) -> None:
    """Bound the effective accuracy of every scheme with batches up to --max-batch.

    Solves the fluid linear program; at fixed service times clairvoyant schemes cannot pass it
    either. "Poisson" is a tighter bound for Poisson arrivals, whose batches take time to gather;
    there is none where service times are drawn. "served" is the share of the queries that the
    best mix answers in time, "one more worker" the effective accuracy that it would add, "best
    mix" the models and batches (b) by their share of the queries. With several worker types or
    SLO classes it says instead which share each type takes in the best mix, and what each class
    gets.

    \b
    Examples:
      $ ramsis bound --profiles digits-cpu --slo-ms 100 --workers 4 --load 50:200:50
      $ ramsis bound --profiles digits-cpu --slo-ms 100 --workers 4 --load 50 --json
      $ ramsis bound --profiles digits-cpu --slo-ms 15:0.3,25:0.7 --workers old=3,new=1 --load 800
    """
    serving = fleet_of(profile_names, slo_ms, workers)
    if isinstance(serving, MixedFleet):
        bound_mixed(serving, loads, service=service, max_batch=max_batch, as_json=as_json)
        return
    times = ServiceTimes.of(profiles.load(profile_names.one), service, max_batch)
    rows: list[dict[str, Any]] = []
    for load_qps in loads:
        found = fluid_bound(
            times, slo_ms=serving.slo_ms, workers=serving.workers, load_qps=load_qps,
            max_batch=max_batch,
        )
        tighter = None
        if service != DISTRIBUTION:
            tighter = fluid_bound(
                times, slo_ms=serving.slo_ms, workers=serving.workers, load_qps=load_qps,
                max_batch=max_batch, gathering=True).effective_accuracy
        share = found.batch_share[0][0]
        mix = [
            {"model": times.models[m], "batch": int(b) + 1, "share": float(share[m, b])}
            for m, b in zip(*share.nonzero(), strict=True)
        ]
        rows.append({
            "load_qps": load_qps, "workers": serving.workers, "slo_ms": serving.slo_ms,
            "upper_bound": found.effective_accuracy, "poisson_upper_bound": tighter,
            "query_price": found.query_price, "served_fraction": found.served_fraction,
            "capacity_qps": found.capacity_qps, "worker_price": float(found.worker_price[0]),
            "mix": mix,
        })
    if as_json:
        print_json(rows)
    else:
        print_rows(_COLUMNS, [{**row, "mix": _mix_words(row["mix"])} for row in rows])


def _mix_words(mix: list[dict[str, Any]]) -> str:
    parts = sorted(mix, key=lambda part: -part["share"])
    return ", ".join(
        f"{part['model']} b={part['batch']} ({part['share']:.0%})" for part in parts
    )
