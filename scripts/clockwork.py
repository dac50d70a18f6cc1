"""Clockwork's low-SLO grid and an Azure-like load: schedulers side by side.

python scripts/clockwork.py --rate 2400 --instances 12 --slo-ms 6,12 --duration-s 10 --seeds 3
python scripts/clockwork.py --azure 4 --duration-s 10
python scripts/clockwork.py --instances 48 --slo-ms 24 --train sparse,early,work --agents agents

*The grid* is that of a thesis on reinforcement learning in Clockwork (Saarland, 2022): 6 GPUs, 12
or 48 instances of ResNet50, 600, 1200 or 2400 requests per second together, SLOs of 3 to 96 ms.
Its batch of 1 takes 2.7 ms; the other batch times are those published with Clockwork (Gujarati et
al., OSDI 2020), scaled by as much. It finds that Clockwork answers all requests in time at 48 and
96 ms, and with 600 and 1200 requests per second down to 6 ms.

*The Azure-like load* is in the spirit of its trace experiment, whose rates are not public: 61
models with 66 instances each on 12 GPUs, 9500 requests per second, an SLO of 100 ms. The rate of
instance i is proportional to 1 / (i + 20)², times a lognormal number, shuffled over the
instances; times of a batch of 1 rise geometrically from 0.9 ms over the models, memory from 40 to
550 MB. GPUs hold, at the start, as many of the most wanted instances as fit.

*Agents that learn.* ``--train`` trains an agent of the thesis with each of some rewards on each
cell, with the extra ``rl`` only, and plays it beside the others; with --agents their files, and
checkpoints to go on from, are kept. ``--scheduler rl`` plays the one that is shipped.

Prints a row for each SLO and scheduler, means over the seeds; --json writes them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from study import parser_of

from ramsis.bounds import scenario_bound
from ramsis.files import write_atomic
from ramsis.planning import SCHEDULERS, compare, scheduler_named
from ramsis.scenario import Scenario, draw_requests, scenario_from_document
from ramsis.studies.clockwork_rl import needing_extra, reward_named
from ramsis.studies.clockwork_rl.agent import write_agent

BATCH_MS = {1: 3.322, 2: 5.271, 4: 7.495, 8: 12.439, 16: 21.729}
"""ResNet50 on a V100, as published with Clockwork."""
BATCH_1_MS = 2.7
GPUS, GPU_MEMORY_MB, MODEL_MB, LOAD_MS = 6, 32_000, 102.3, 8.37
AZURE_GPUS, AZURE_MODELS, AZURE_COPIES, AZURE_QPS, AZURE_SLO_MS = 12, 61, 66, 9500.0, 100.0
AZURE_LOAD_MB_PER_S = 12_220
COMPARED = ("clockwork", "planned", "random")


def latencies(batch_1_ms: float) -> list[dict[str, Any]]:
    """Batch times of a model with the shape of ResNet50's."""
    return [{"worker_type": "gpu", "batch": batch, "latency_ms": ms / BATCH_MS[1] * batch_1_ms}
            for batch, ms in BATCH_MS.items()]


def grid(rate_qps: float, instances: int, slo_ms: float, duration_s: float) -> Scenario:
    """A cell of the grid: everything is loaded everywhere."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": f"{rate_qps:g} x {instances}, {slo_ms:g} ms",
        "duration_s": duration_s,
        "worker_types": [{"name": "gpu", "count": GPUS, "memory_mb": GPU_MEMORY_MB}],
        "models": [{"name": "resnet50", "copies": instances, "memory_mb": MODEL_MB,
                    "load_ms": LOAD_MS, "latency": latencies(BATCH_1_MS)}],
        "streams": [{"name": "users", "model": "resnet50", "slo_ms": slo_ms,
                     "workload": {"load_qps": rate_qps}}],
        "start": [{"worker": "gpu", "models": ["resnet50"]}],
    })


def azure(longest_ms: float, duration_s: float, seed: int = 0) -> Scenario:
    """The Azure-like load; times of a batch of 1 go up to ``longest_ms``."""
    rng = np.random.default_rng(seed)
    count = AZURE_MODELS * AZURE_COPIES
    rates = rng.lognormal(0.0, 0.5, count) / (np.arange(count) + 20.0) ** 2
    rng.shuffle(rates)
    rates *= AZURE_QPS / rates.sum()
    batch_ms = np.geomspace(0.9, longest_ms, AZURE_MODELS)
    memory_mb = np.geomspace(40.0, 550.0, AZURE_MODELS)
    by_model = rates.reshape(AZURE_MODELS, AZURE_COPIES)
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": f"Azure-like, up to {longest_ms:g} ms",
        "duration_s": duration_s,
        "worker_types": [{"name": "gpu", "count": AZURE_GPUS, "memory_mb": GPU_MEMORY_MB,
                          "load_mb_per_s": AZURE_LOAD_MB_PER_S}],
        "models": [{"name": f"dnn{i}", "copies": AZURE_COPIES, "memory_mb": float(memory_mb[i]),
                    "latency": latencies(float(batch_ms[i]))} for i in range(AZURE_MODELS)],
        "streams": [{"name": f"dnn{i}", "model": f"dnn{i}", "slo_ms": AZURE_SLO_MS,
                     "shares": row.tolist(), "workload": {"load_qps": float(row.sum())}}
                    for i, row in enumerate(by_model)],
        "start": _held(rates, batch_ms, memory_mb),
    })


def _held(rates: Any, batch_ms: Any, memory_mb: Any) -> list[dict[str, Any]]:
    """The most wanted instances that fit, each on the GPU with least work."""
    held: list[list[str]] = [[] for _ in range(AZURE_GPUS)]
    free, work = [float(GPU_MEMORY_MB)] * AZURE_GPUS, [0.0] * AZURE_GPUS
    for instance in np.argsort(-rates, kind="stable").tolist():
        model, copy = divmod(instance, AZURE_COPIES)
        for gpu in sorted(range(AZURE_GPUS), key=work.__getitem__):
            if free[gpu] >= memory_mb[model]:
                free[gpu] -= memory_mb[model]
                work[gpu] += rates[instance] * batch_ms[model]
                held[gpu].append(f"dnn{model}-{copy + 1}")
                break
    return [{"worker": f"gpu-{gpu + 1}", "models": names} for gpu, names in enumerate(held)]


def trained(scenario: Scenario, rewards: Sequence[str], options: argparse.Namespace,
            folder: Path) -> list[str]:
    """The schedulers that play agents trained on a scenario, one for each reward."""
    if not rewards:
        return []
    training = needing_extra("training")
    names = []
    for name in rewards:
        settings = training.TrainingSettings(steps=options.steps, imitate=options.imitate,
                                             learning_rate=options.learning_rate,
                                             discount=options.discount, runs=options.runs,
                                             first_steps=options.first_steps,
                                             entropy=options.entropy,
                                             reward=reward_named(name))
        place = folder / f"{''.join(filter(str.isalnum, scenario.name))}-{name}"
        agent, _ = training.train(
            scenario, settings, checkpoint=place.with_suffix(".pt"),
            on_evaluation=lambda one, name=name: print(f"{name}: {one}", file=sys.stderr))
        write_agent(agent, place.with_suffix(".json"))
        names.append(f"rl:agent={place.with_suffix('.json')}")
    return names


@cache
def _load_loops() -> None:
    """Have compiled loops loaded, and compiled where they are not yet, before time is taken."""
    small = azure(4.0, 0.05)
    compare(small, [scheduler_named("planned:window_ms=20")], (0,))
    compare(grid(600.0, 2, 48.0, 0.05), [scheduler_named("planned")], (0,))


def rows_of(
    scenario: Scenario, schedulers: Sequence[str], seeds: int, bound: bool
) -> list[dict[str, Any]]:
    """A row for each scheduler; the bound is that of the requests, which all of them get."""
    rows: list[dict[str, Any]] = []
    _load_loops()
    shares: dict[str, Any] = {}
    for name in schedulers:
        begin = time.process_time()
        found, = compare(scenario, [scheduler_named(name)], range(seeds))
        took_s = time.process_time() - begin
        row = found.row()
        rows.append({**row, "requests_per_cpu_s": round(row["requests"] / took_s)})
    if bound:
        bounds = [scenario_bound(scenario, draw_requests(scenario, seed)) for seed in range(seeds)]
        shares["bound"] = sum(one.share for one in bounds if one is not None) / seeds
    return [{**row, **shares} for row in rows]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--rate", type=float, default=2400.0, metavar="QPS")
    parser.add_argument("--instances", type=int, default=12)
    parser.add_argument("--slo-ms", default="3,6,12,24,48,96", metavar="MS,...")
    parser.add_argument("--azure", type=float, metavar="MS",
                        help="the Azure-like load, with batches of 1 that take up to MS")
    parser.add_argument("--duration-s", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scheduler", action="append",
                        help=f"repeat to compare; by default {', '.join(COMPARED)}")
    parser.add_argument("--train", default="", metavar="REWARD,...",
                        help="also agents trained with these rewards (extra rl; takes minutes)")
    parser.add_argument("--steps", type=int, default=200_000, help="of each training")
    parser.add_argument("--imitate", type=int, default=0,
                        help="decisions of a rule that are imitated first")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--discount", type=float, default=0.9)
    parser.add_argument("--entropy", type=float, default=0.003)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--first-steps", type=int, default=3_000)
    parser.add_argument("--agents", type=Path, metavar="FOLDER", help="keep trained agents here")
    parser.add_argument("--no-bound", action="store_true", help="leave out what none can beat")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    schedulers = options.scheduler or [name for name in COMPARED if name in SCHEDULERS]
    rows: list[dict[str, Any]] = []
    slos = [AZURE_SLO_MS] if options.azure else [float(one) for one in options.slo_ms.split(",")]
    for slo_ms in slos:
        if options.azure:
            scenario = azure(options.azure, options.duration_s)
            terms = {"rate_qps": AZURE_QPS, "instances": AZURE_MODELS * AZURE_COPIES}
        else:
            scenario = grid(options.rate, options.instances, slo_ms, options.duration_s)
            terms = {"rate_qps": options.rate, "instances": options.instances}
        rewards = [name for name in options.train.split(",") if name]
        with contextlib.ExitStack() as stack:
            folder = options.agents or (
                Path(stack.enter_context(tempfile.TemporaryDirectory())) if rewards else Path())
            played = [*schedulers, *trained(scenario, rewards, options, folder)]
            found = rows_of(scenario, played, options.seeds, not options.no_bound)
        for row in found:
            rows.append({**terms, "slo_ms": slo_ms, **row})
            bound = "" if row.get("bound") is None else f"  bound {row['bound']:.4f}"
            print(f"{terms['rate_qps']:g} x {terms['instances']}, {slo_ms:g} ms  "
                  f"{row['scheduler']:<12}  in time {row['in_time']:.4f}{bound}  mean batch "
                  f"{row['mean_batch'] or 0:.2f}  loads {row['loads']}  "
                  f"{row['requests_per_cpu_s']} requests per CPU second", flush=True)
    if options.json is not None:
        write_atomic(options.json, json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
