"""Policies that let models share GPUs, side by side: what they plan and what they deliver.

python scripts/sharing.py --models A,B --rps R --slo-ms S --gpus G --json FILE
python scripts/sharing.py --random N --json FILE
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import operator
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import Results, parser_of

from ramsis.errors import InputFileError, RamsisError
from ramsis.files import canonical_json, write_atomic
from ramsis.plugins import trust
from ramsis.studies.sharing import (
    Program,
    QueueAware,
    Replica,
    SharingPolicy,
    gpus_of,
    models_of,
    plan,
)
from ramsis.studies.sharing.bound import goodput_bound_rps
from ramsis.studies.sharing.gpu.interference import INTERFERENCES
from ramsis.studies.sharing.gpu.profile import (
    SharingProfile,
    between,
    find_sharing_profile,
    read_sharing_profile,
)
from ramsis.studies.sharing.gpu.shared_gpu import NetworkTime, RouterSettings, SharedModel
from ramsis.studies.sharing.play import SharedCluster, SharingFigures, measure_sharing, play
from ramsis.studies.sharing.presets import gpu_sharing

POLICIES = "usher,wao-usher,igniter,ao-milp,wsm-milp,queue-aware"
TEXT_MODELS = "bert,gpt2,t5,xlnet,bloom_560"
TEXT_BYTES = 8192
"""512 tokens and their mask, as 64-bit integers."""
_DESCRIPTION = """\
Plan with each policy, play the plan on the cluster engine, and write a row for each: planned and
simulated goodput, an upper bound, and the models that are not served. Lists of --rps (for each
model), --slo-ms and --gpus make a grid. Results are kept beside the JSON file, so that what was
interrupted goes on. The thesis' experiments:

  --models alexnet,densenet121,efficientnet_b7,resnet50,vgg19 --rps 500 --slo-ms 200 \\
      --gpus 1,2,3,4,5,6
  --models alexnet,densenet121,efficientnet_b7,resnet50,vgg19 \\
      --rps 200,400,600,800,1000 --slo-ms 150,250,350 --gpus 4
  --models resnet50,mobilenet_v2,bert,gpt2 --rps 300 --slo-ms 300 --gpus 1,2,3,4,5,6,7,8

--random N draws mixes in their place, and plays each plan with all latencies 10 % longer, too:

  --random 24 --duration-s 60 --json random.json
"""
_SLOWER = 1.1
_MODELS, _GPUS, _TENS_OF_MS, _LOAD = (3, 6), (2, 7), (15, 36), (0.5, 1.0)
"""Of random mixes, from and to before; load is the work of all requests over that of the GPUs."""
RANGES = (("seeds", 1, True), ("duration_s", 0, False), ("random", 1, True),
          ("random_seed", 0, True), ("slower", 0, False), ("ties", 0, True),
          ("client_overhead_ms", 0, True), ("client_sleep_factor", 1, True))
"""Options with their least value, and whether they may equal it."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of(_DESCRIPTION)
    parser.add_argument("--profile", default="v100",
                        help="CSV file of a sharing profile, or v100: the thesis' 13 models")
    parser.add_argument("--models", help="names, with commas")
    parser.add_argument("--rps", help="requests per second of each model")
    parser.add_argument("--slo-ms")
    parser.add_argument("--gpus", help="how many")
    parser.add_argument("--random", type=int, metavar="N",
                        help="N mixes in the place of --models, --rps, --slo-ms and --gpus: 3 to "
                             "5 models, 2 to 6 GPUs, SLOs from 150 to 350 ms, one rate for all, "
                             "of which the work is 50 to 100 %% of what the GPUs can do")
    parser.add_argument("--random-seed", type=int, default=0, help="of the mixes")
    parser.add_argument("--slower", type=float, metavar="FACTOR",
                        help="play each plan with all latencies so many times as long, too "
                             f"({_SLOWER:g} with --random)")
    parser.add_argument("--ties", type=int, default=0, metavar="N",
                        help="N more of the equal optima of ao-milp and wsm-milp: what the worst "
                             "and the best of them serve")
    parser.add_argument("--client-overhead-ms", type=float, default=0.0,
                        help="that a client loses with each request: fewer are sent than asked "
                             "for (0.3077 in the thesis: 433.34 of 500)")
    parser.add_argument("--client-sleep-factor", type=float, default=1.0, metavar="FACTOR",
                        help="a client sleeps so many times as long as it should (1.032, with an "
                             "overhead of 0.123 ms, in the thesis' Table 4.1)")
    parser.add_argument("--policy", default=POLICIES,
                        help="names, with commas, or FILE.py:FUNCTION of one's own")
    parser.add_argument("--json", required=True, type=Path, help="file of the rows")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each plan")
    parser.add_argument("--duration-s", type=float, default=8.0, help="of a run's arrivals")
    parser.add_argument("--interference", choices=tuple(INTERFERENCES), default="thesis",
                        help="fitted to the thesis' printed cases, to those of its policies other "
                             "than iGniter, or none")
    parser.add_argument("--waiting-ms", type=float, default=100.0, help="the router's limit")
    parser.add_argument("--lazy", action="store_true",
                        help="look at the limit only when a request arrives")
    parser.add_argument("--coroutines", type=int, metavar="N",
                        help="batches on their way at most, before the router stops taking "
                             "requests; by default no limit")
    parser.add_argument("--copy-ms", type=float, default=0.0, metavar="MS",
                        help="of a request to the GPU, on a stream of its own beside the batch "
                             "before it; a part of the profile's latency")
    parser.add_argument("--network-range", action="append", default=[], metavar="BYTES,A,B,C",
                        help="batches from so many bytes on are A x^B + C ms on their way; "
                             "repeat, by size")
    parser.add_argument("--text-models", default=TEXT_MODELS,
                        help=f"models whose requests have {TEXT_BYTES} bytes, not an image's")
    parser.add_argument("--fair", action="store_true",
                        help="the queue-aware planner serves the worst-off model first")
    parser.add_argument("--plot", type=Path, help="figure of goodput: .png, .pdf or .svg")
    return parser.parse_args(given)


def numbers(text: str, name: str, kind: Callable[[str], Any] = float) -> list[Any]:
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < value < float("inf") for value in found):
        raise InputFileError("not a list of numbers", where=f"--{name}", value=text,
                             allowed="numbers > 0, with commas between them")
    return found


def router_of(given: argparse.Namespace) -> RouterSettings:
    ranges = []
    for text in given.network_range:
        try:
            start, a, b, c = map(float, text.split(","))
        except ValueError:
            raise InputFileError("not a range of sizes", where="--network-range", value=text,
                                 allowed="BYTES,A,B,C") from None
        ranges.append((start, a, b, c))
    network = NetworkTime(ranges=tuple(ranges))
    texts = dict.fromkeys(given.text_models.split(","),
                          replace(network, bytes_per_request=TEXT_BYTES))
    return RouterSettings(given.waiting_ms, given.lazy, network, texts, given.copy_ms,
                          given.copy_ms > 0, given.coroutines)


def run_row(
    given: argparse.Namespace, profile: SharingProfile, bounds: dict[str, float],
    case: dict[str, Any]
) -> dict[str, Any]:
    """Plan with a policy, and play the plan with each seed; ``bounds`` are kept for other rows."""
    models = models_of(profile, dict.fromkeys(case["models"], case["rps"]), case["slo_ms"])
    gpus = gpus_of(case["gpus"], profile.gpu_types()[0])
    router, interference = router_of(given), INTERFERENCES[given.interference]
    sent = [replace(model, rate_rps=sent_rps(
        model.rate_rps, given.client_overhead_ms, given.client_sleep_factor)) for model in models]
    planner = QueueAware(router, interference, fair=given.fair)
    policy: SharingPolicy | None = planner if case["policy"] == "queue-aware" else None
    found = plan(case["policy"], models, gpus, policy)

    def cluster_at(factor: float) -> SharedCluster:
        return SharedCluster(tuple(model.slower(factor) for model in sent), gpus, router,
                             interference, duration_s=given.duration_s)

    def played(replicas: Sequence[Replica], factor: float = 1.0) -> list[SharingFigures]:
        cluster = cluster_at(factor)
        return [measure_sharing(play(cluster, replicas, seed)) for seed in range(given.seeds)]

    def bound_rps(factor: float) -> float:
        """Mean of the bounds on the runs, which do not depend on the policy."""
        key = canonical_json({**case, "policy": None, "factor": factor})
        if key not in bounds:
            cluster = cluster_at(factor)
            bounds[key] = statistics.fmean(goodput_bound_rps(
                cluster.models, gpus, interference, duration_s=given.duration_s, router=router,
                arrivals_ms=arrivals_ms(cluster, seed)) for seed in range(given.seeds))
        return bounds[key]

    def figures(factor: float = 1.0) -> tuple[float, float, list[SharingFigures]]:
        """Planned or promised goodput, its bound, and runs."""
        planned = found.goodput_rps
        if policy is not None:
            planned = sum(planner.served(sent, gpus, found.replicas, factor).values())
        return planned, bound_rps(factor), played(found.replicas, factor)

    planned, bound, runs = figures()
    more: dict[str, Any] = {}
    if given.slower:
        slower = figures(given.slower)
        more = {"slower": given.slower, "slower_planned_goodput_rps": slower[0],
                "slower_bound_rps": slower[1], "slower_simulated_goodput_rps": _mean(slower[2])}
    program = {"ao-milp": "occupancy", "wsm-milp": "utilisation"}.get(case["policy"])
    if given.ties and program:
        tied = [played(Program(partial(gpu_sharing, tie=tie), program)(models, gpus))
                for tie in range(given.ties)]
        worst = min(tied, key=_mean)
        more |= {"tied_goodput_rps": [_mean(worst), max(map(_mean, tied))],
                 "tied_worst_by_model": _details(worst)["by_model"]}
    return {
        **case, "planned_goodput_rps": planned, "simulated_goodput_rps": _mean(runs),
        "bound_rps": bound, **more,
        "unserved": dict(found.unserved), **_details(runs),
        "replicas": [[r.model, r.gpu, r.batch, r.mps_share] for r in found.replicas],
    }


def arrivals_ms(cluster: SharedCluster, seed: int) -> list[NDArray[np.float64]]:
    """Times of each model's requests in a run."""
    run = play(cluster, [], seed).run
    return [run.arrival_ms[run.asked == m] for m in range(len(cluster.models))]


def sent_rps(asked_rps: float, overhead_ms: float, sleep_factor: float = 1.0) -> float:
    """Return the rate of a client that is busy with each request, and then sleeps too long."""
    return asked_rps / (sleep_factor + asked_rps * overhead_ms / 1000)


def _mean(runs: Sequence[SharingFigures]) -> float:
    return statistics.fmean(run.goodput_rps for run in runs)


def _details(runs: Sequence[SharingFigures]) -> dict[str, Any]:
    """Means over the runs, by model and by replica."""
    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    spread = [run.goodput_rps for run in runs]
    keys = ("achieved_rps", "goodput_rps", "throughput_rps", "router_to_node_p95_ms",
            "node_to_worker_p95_ms", "processing_p95_ms", "response_p95_ms")
    return {
        "goodput_deviation_rps": statistics.stdev(spread) if len(spread) > 1 else None,
        "fairness": mean([run.fairness for run in runs]),
        "smallest_share": mean([run.smallest_share for run in runs]),
        "by_model": {one.name: {key: mean([getattr(run.models[m], key) for run in runs])
                                for key in keys} for m, one in enumerate(runs[0].models)},
        "by_replica": [{"model": one.model, "gpu": one.gpu, "batch": one.batch,
                        "share_of_requests": one.share_of_requests, "mean_batch": one.mean_batch,
                        "headroom": one.headroom} for one in runs[0].replicas],
    }


def cases(given: argparse.Namespace, profile: SharingProfile) -> list[dict[str, Any]]:
    policies = given.policy.split(",")
    if given.random is not None:
        return [{**mix, "policy": policy} for i in range(given.random)
                for mix in [random_mix(profile, given.random_seed, i)] for policy in policies]
    grid = itertools.product(numbers(given.rps, "rps"), numbers(given.slo_ms, "slo-ms"),
                             numbers(given.gpus, "gpus", int), policies)
    return [{"models": given.models.split(","), "rps": rps, "slo_ms": slo_ms, "gpus": gpus,
             "policy": policy} for rps, slo_ms, gpus, policy in grid]


def random_mix(profile: SharingProfile, seed: int, number: int) -> dict[str, Any]:
    """One of the mixes of a seed; each is drawn alone."""
    rng = np.random.default_rng([seed, number])
    kind = profile.gpu_types()[0]
    gpus, slo_ms = int(rng.integers(*_GPUS)), 10.0 * float(rng.integers(*_TENS_OF_MS))
    every = models_of(profile, dict.fromkeys(profile.models(), 1.0), slo_ms)
    able = [model.name for model in every if model.in_time(kind)]
    count = min(len(able), int(rng.integers(*_MODELS)))
    names = sorted(rng.choice(able, count, replace=False).tolist())
    work_s = sum(work_ms(model, kind) for model in every if model.name in names) / 1000
    rps = max(1, round(rng.uniform(*_LOAD) * gpus / work_s))
    return {"models": names, "rps": float(rps), "slo_ms": slo_ms, "gpus": gpus}


def work_ms(model: SharedModel, kind: str) -> float:
    """Least work of a request, ms of a whole GPU; infinite without a batch within the SLO."""
    rows = model.batches.get(kind, ())
    sizes = (between(rows, n) for n in range(1, 1 + (rows[-1].batch if rows else 0)))
    return min((row.utilisation * row.latency_ms / row.batch for row in sizes
                if row is not None and row.latency_ms <= model.slo_ms), default=float("inf"))


def rows_of(given: argparse.Namespace) -> list[dict[str, Any]]:
    for name, least, may_equal in RANGES:
        value = getattr(given, name)
        if value is not None and not (
                least < value < float("inf") or (may_equal and value == least)):
            raise InputFileError(
                "out of range", where=f"--{name.replace('_', '-')}", value=value,
                allowed=f"a finite number {'>=' if may_equal else '>'} {least}")
    grid = (given.models, given.rps, given.slo_ms, given.gpus)
    if (None in grid) if given.random is None else any(value is not None for value in grid):
        raise InputFileError("no mixes", allowed="either --random, or all of --models, "
                             "--rps, --slo-ms and --gpus")
    if given.slower is None and given.random is not None:
        given.slower = _SLOWER
    profile = read_sharing_profile(given.profile)
    digest = hashlib.sha256(find_sharing_profile(given.profile).read_bytes()).hexdigest()[:12]
    settings = {name: getattr(given, name) for name in (
        "seeds", "duration_s", "interference", "waiting_ms", "lazy", "text_models", "fair",
        "slower", "ties", "client_overhead_ms", "client_sleep_factor", "coroutines", "copy_ms",
        "network_range")}
    results = Results(given.json.with_suffix(".jsonl"))
    rows = []
    bounds: dict[str, float] = {}
    for case in cases(given, profile):
        row = results.row({"profile": digest, **settings, **case},
                          partial(run_row, given, profile, bounds, case))
        rows.append(row)
        print(line_of(row), flush=True)
    return rows


def line_of(row: dict[str, Any]) -> str:
    unserved = [f"  {name} is not served: {reason}" for name, reason in row["unserved"].items()]
    line = (f"{row['rps']:g} rps  {row['slo_ms']:g} ms  {row['gpus']} GPUs  {row['policy']:12s} "
            f"planned {row['planned_goodput_rps']:8.2f}  "
            f"simulated {row['simulated_goodput_rps']:8.2f}  bound {row['bound_rps']:8.2f}")
    if "slower" in row:
        line += (f"  x {row['slower']:g}: {row['slower_simulated_goodput_rps']:8.2f} of "
                 f"{row['slower_bound_rps']:8.2f}")
    if "tied_goodput_rps" in row:
        line += "  equal optima {:.2f} to {:.2f}".format(*row["tied_goodput_rps"])
    return "\n".join([line, *unserved])


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The queue-aware planner beside the best of the others, in every cell, and over all."""
    lines: list[str] = []
    ratios: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    key = operator.itemgetter("models", "rps", "slo_ms", "gpus")
    for (names, rps, slo_ms, gpus), group in itertools.groupby(rows, key):
        there = list(group)
        mine = [row for row in there if row["policy"] == "queue-aware"]
        others = [row for row in there if row["policy"] != "queue-aware"]
        if not mine or not others:
            continue
        cell = f"{rps:g} rps  {slo_ms:g} ms  {gpus} GPUs"
        for slower in ("", "slower_") if "slower" in mine[0] else ("",):
            goodput = f"{slower}simulated_goodput_rps"
            best = max(others, key=operator.itemgetter(goodput))
            got, other = mine[0][goodput], best[goodput]
            ratio = got / other if other else float("inf") if got else 1.0
            bound = mine[0][f"{slower}bound_rps"]
            share = got / bound if bound else 1.0
            ratios.setdefault(slower, []).append(ratio)
            shares.setdefault(slower, []).append(share)
            at = f", latencies x {mine[0]['slower']:g}" if slower else ""
            lines.append(f"{cell}{at}: queue-aware {got:.1f} = {ratio:.4f} x {best['policy']} "
                         f"({other:.1f}), {share:.3f} of the bound  [{' '.join(names)}]")
    for slower, found in ratios.items() if len(lines) > 1 else ():
        at = "longer latencies" if slower else "the profile's latencies"
        lines.append(f"{at}: at least {min(found):.4f} x the best other policy, "
                     f"{statistics.fmean(shares[slower]):.4f} of the bound in the mean")
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    trust(given.policy)
    try:
        rows = rows_of(given)
        write_atomic(given.json, canonical_json({
            "interference": given.interference, "seeds": given.seeds,
            "duration_s": given.duration_s, "rows": rows}))
        if given.plot is not None:
            from ramsis.studies.sharing.figure import plot_sharing

            plot_sharing(rows, given.plot)
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
