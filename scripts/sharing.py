"""Policies that let models share GPUs, side by side: what they plan and what they deliver.

python scripts/sharing.py --profile FILE --models A,B --rps R --slo-ms S --gpus G --json FILE
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from acceptance.results import Results

from placement_milp.sharing import QueueAware, SharingPolicy, gpus_of, models_of, plan
from placement_milp.sharing.bound import goodput_bound_rps
from ramsis.cluster.interference import NO_INTERFERENCE, THESIS
from ramsis.cluster.shared_gpu import NetworkTime, RouterSettings
from ramsis.errors import InputFileError, RamsisError, describe
from ramsis.files import canonical_json, write_atomic
from ramsis.plugins import trust
from ramsis.profiles.sharing import SharingProfile, read_sharing_profile
from ramsis.sim.cluster.sharing import SharedCluster, SharingFigures, measure_sharing, play

POLICIES = "usher,wao-usher,igniter,ao-milp,wsm-milp,queue-aware"
INTERFERENCES = {"thesis": THESIS, "none": NO_INTERFERENCE}
TEXT_MODELS = "bert,gpt2,t5,xlnet,bloom_560"
TEXT_BYTES = 8192
"""512 tokens and their mask, as 64-bit integers."""
_INPUT = 3
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
"""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=_DESCRIPTION,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True, help="CSV file of a profile of sharing")
    parser.add_argument("--models", required=True, help="names, with commas")
    parser.add_argument("--rps", required=True, help="requests per second of each model")
    parser.add_argument("--slo-ms", required=True)
    parser.add_argument("--gpus", required=True, help="how many")
    parser.add_argument("--policy", default=POLICIES,
                        help="names, with commas, or FILE.py:FUNCTION of one's own")
    parser.add_argument("--json", required=True, type=Path, help="file of the rows")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each plan")
    parser.add_argument("--duration-s", type=float, default=8.0, help="of a run's arrivals")
    parser.add_argument("--interference", choices=tuple(INTERFERENCES), default="thesis",
                        help="fitted to the thesis' printed cases, or none")
    parser.add_argument("--waiting-ms", type=float, default=100.0, help="the router's limit")
    parser.add_argument("--lazy", action="store_true",
                        help="look at the limit only when a request arrives")
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
        raise InputFileError(describe("not a list of numbers", where=f"--{name}", value=text,
                                      allowed="numbers > 0, with commas between them"))
    return found


def router_of(given: argparse.Namespace) -> RouterSettings:
    text = NetworkTime(bytes_per_request=TEXT_BYTES)
    return RouterSettings(given.waiting_ms, given.lazy,
                          networks=dict.fromkeys(given.text_models.split(","), text))


def run_row(
    given: argparse.Namespace, profile: SharingProfile, case: dict[str, Any]
) -> dict[str, Any]:
    """Plan with a policy, and play the plan with each seed."""
    models = models_of(profile, dict.fromkeys(case["models"], case["rps"]), case["slo_ms"])
    gpus = gpus_of(case["gpus"], profile.gpu_types()[0])
    router, interference = router_of(given), INTERFERENCES[given.interference]
    policy: SharingPolicy | None = None
    planner = QueueAware(router, interference, duration_s=given.duration_s, fair=given.fair)
    if case["policy"] == "queue-aware":
        policy = planner
    found = plan(case["policy"], models, gpus, policy)
    planned = found.goodput_rps
    if policy is not None:
        planned = sum(planner.served(models, gpus, found.replicas).values())
    cluster = SharedCluster(models, gpus, router, interference, duration_s=given.duration_s)
    runs = [measure_sharing(play(cluster, found.replicas, seed)) for seed in range(given.seeds)]
    return {
        **case, "planned_goodput_rps": planned,
        "simulated_goodput_rps": statistics.fmean(run.goodput_rps for run in runs),
        "bound_rps": goodput_bound_rps(models, gpus, interference, duration_s=given.duration_s),
        "unserved": dict(found.unserved), **_details(runs),
        "replicas": [[r.model, r.gpu, r.batch, r.mps_share] for r in found.replicas],
    }


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


def cases(given: argparse.Namespace) -> list[dict[str, Any]]:
    names = given.models.split(",")
    grid = itertools.product(numbers(given.rps, "rps"), numbers(given.slo_ms, "slo-ms"),
                             numbers(given.gpus, "gpus", int), given.policy.split(","))
    return [{"models": names, "rps": rps, "slo_ms": slo_ms, "gpus": gpus, "policy": policy}
            for rps, slo_ms, gpus, policy in grid]


def rows_of(given: argparse.Namespace) -> list[dict[str, Any]]:
    if given.seeds < 1 or not 0 < given.duration_s < float("inf"):
        raise InputFileError(describe("no runs", value=(given.seeds, given.duration_s),
                                      allowed="--seeds >= 1, --duration-s > 0"))
    profile = read_sharing_profile(given.profile)
    digest = hashlib.sha256(Path(given.profile).read_bytes()).hexdigest()[:12]
    settings = {name: getattr(given, name) for name in (
        "seeds", "duration_s", "interference", "waiting_ms", "lazy", "text_models", "fair")}
    results = Results(given.json.with_suffix(".jsonl"))
    rows = []
    for case in cases(given):
        row = results.row({"profile": digest, **settings, **case},
                          partial(run_row, given, profile, case))
        rows.append(row)
        print(line_of(row), flush=True)
    return rows


def line_of(row: dict[str, Any]) -> str:
    unserved = [f"  {name} is not served: {reason}" for name, reason in row["unserved"].items()]
    line = (f"{row['rps']:g} rps  {row['slo_ms']:g} ms  {row['gpus']} GPUs  {row['policy']:12s} "
            f"planned {row['planned_goodput_rps']:8.2f}  "
            f"simulated {row['simulated_goodput_rps']:8.2f}  bound {row['bound_rps']:8.2f}")
    return "\n".join([line, *unserved])


def summary(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The queue-aware planner beside the best of the others, in every cell."""
    lines = []
    for key, group in itertools.groupby(rows, lambda r: (r["rps"], r["slo_ms"], r["gpus"])):
        there = list(group)
        mine = [row for row in there if row["policy"] == "queue-aware"]
        others = [row for row in there if row["policy"] != "queue-aware"]
        if mine and others:
            best = max(others, key=lambda row: row["simulated_goodput_rps"])
            got, other = (row["simulated_goodput_rps"] for row in (mine[0], best))
            ratio = got / other if other else float("inf") if got else 1.0
            bound = mine[0]["bound_rps"]
            lines.append(f"{key[0]:g} rps  {key[1]:g} ms  {key[2]} GPUs: queue-aware {got:.1f} = "
                         f"{ratio:.4f} x {best['policy']} ({other:.1f}), "
                         f"{got / bound if bound else 1.0:.3f} of the bound")
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
            from ramsis.report.sharing import plot_sharing

            plot_sharing(rows, given.plot)
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(summary(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
