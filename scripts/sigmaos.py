"""The experiments of the σOS thesis, simulated: which scheduler wins which, and by how much.

python scripts/sigmaos.py [--figures] [--part NAME] [--json rows.json] [--seeds 200]
    [--scenarios FOLDER]

``--figures`` adds figures 3.1, 3.2 and 6.1 to 6.6, how much lower the latency is, and the formulas
of section 6.5 beside simulation; ``--part`` computes only some parts, and ``--part inference``
measures what the times of larger models are taken from (``pip install 'ramsis[torch]'``).
``--scenarios`` writes the scenarios, for ``ramsis simulate``.

Three times of t5-small are fitted to the experiment with ten requests, one after the other: an
inference, the first load of all and any later one. Everything else is printed in the thesis, or
its origin is stated beside it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study import parser_of

from ramsis.files import write_atomic
from ramsis.scenario import Scenario, scenario_from_document, write_scenario
from ramsis.sim import Engine, Run, scheduler

Row = dict[str, Any]

# K. Liu, Enabling Efficient ML Inference in SigmaOS with Model-Aware Scheduling, MIT, 2025.
MACHINES, CORES = 8, 4  # section 6.1
WARM_S, FIRST_LOAD_S, LATER_LOAD_S = 0.996, 6.68, 3.20
"""Fitted: ten requests take 16.64 s with one load and 29.43 s with five (section 6.2)."""
PRINTED_S: Mapping[str, Mapping[str, float]] = {
    "6.1": {"colocation": 12.38, "colocation-queue": 18.80, "registry": 14.41},
    "6.2": {"colocation": 11.18, "colocation-queue": 9.65, "registry": 15.19},
    "6.3": {"colocation": 23.09, "colocation-queue": 25.27, "registry": 20.34},
}
"""Totals, section 6.4."""
TEN_S = {"default": 29.43, "colocation": 16.64}  # section 6.2
TEN_COLD_STARTS = {"t5-small": 5, "t5-base": 5, "t5-large": 7}  # of the default, section 6.2
MANY, MANY_S = 2100, {"default": 2115.19, "colocation": 2097.30}  # section 6.3
EXTRA_S = {"t5-small": 3.0, "t5-base": 6.0, "t5-large": 17.0}
"""What a cold start costs, "about", section 6.3; elsewhere there it is 40 s for t5-large."""
BREAK_EVEN = {"t5-small": 2100, "t5-base": 4200, "t5-large": 11900}
"""Requests from which on the mean times differ by less than ``CLOSE_S``, section 6.3."""
CLOSE_S = 0.01

POST_S, FAR_S = 5.0, 5.0  # section 6.4: processing after inference, and a slow network
NEAR_S = 0.001
"""Ours: the network of table 6.3, of which the thesis says that a few bytes take little time."""

# Section 3.1: a machine of its own, and what Ray Serve waits for by default before it scales.
SET_UP_S, INFERENCE_S, AT_ONCE, REPLICAS = 2.788, 0.923, 100, 4
SCALE_UP_S = 38.75
"""Fitted: one replica answers 40 requests before the others begin; Ray Serve waits for 30 s."""
REPLICA_LOAD_S = 1.08
"""Of the first request of a further replica, 2 s in figure 3.1, what is no inference."""
RAYSERVE = "autoscale:of=modified-baseline,target=1"
COLD_AT = {"default": (1, 2, 3, 5, 6), "colocation": (1,)}  # figure 6.2
SIZE_MB = {"t5-small": 242.0, "t5-base": 892.0, "t5-large": 2951.0, "t5-3b": 11408.0}
"""Of model.safetensors: four bytes for each parameter."""
INITIALISED_S = {"t5-3b": 60.0}  # "nearly a minute", section 3.3
INFER_S = {"t5-small": WARM_S, "t5-base": 2.4, "t5-large": 7.0}
"""The larger models' by ``--part inference``: the thesis has them in a plot only."""
SHAPES = {"t5-small": (512, 2048, 6, 8), "t5-base": (768, 3072, 12, 12),
          "t5-large": (1024, 4096, 24, 16)}
"""Width, inner width, layers and heads: their config.json."""
TOKENS, BEAMS, REPEATS = 12, 4, 7
"""About the length of the five words, and of their translation; beams as in config.json."""
LARGE_COLD_S = (EXTRA_S["t5-large"], 40.0)
"""What a cold start of t5-large costs: sections 6.3 and 6.2 contradict each other."""
ENQUEUE_MS = 2.0  # "in MASched", section 6.2

CRITICAL_RPS, OTHER_RPS, CLASSES_S = 3.5, 2.0, 600.0
"""Ours: the first use two thirds of the cores, both together more than all of them."""

NAMES = {"default": "sigmaos", "colocation": "sigmaos-colocation",
         "colocation-queue": "sigmaos-colocation-queue", "registry": "sigmaos-registry",
         "dynamic": "sigmaos-dynamic"}


def system(
    name: str, streams: Sequence[Row], *, load_s: float = LATER_LOAD_S,
    first_load_s: float = FIRST_LOAD_S, infer_s: float = WARM_S,
) -> Scenario:
    """The thesis' machines and its model, with some streams."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": name, "duration_s": 1e6,
        "worker_types": [{"name": "machine", "count": MACHINES, "cores": CORES}],
        "models": [{
            "name": "t5", "load_ms": 1e3 * load_s, "first_load_ms": 1e3 * first_load_s,
            "latency": [{"worker_type": "machine", "batch": 1, "latency_ms": 1e3 * infer_s}]}],
        "streams": [{"model": "t5", "slo_ms": 1e9, **one} for one in streams],
    })


def sequential(requests: int, **loads: float) -> Scenario:
    """Requests one after the other, each on one core."""
    return system(f"{requests}-sequential", [{
        "name": "translations", "workload": {"users": 1, "requests": requests}, "cores": 1}],
        **loads)


def concurrent(
    table: str, *, warming: bool, post_s: float, network_s: float, requests: int = 2
) -> Scenario:
    """Requests at once that each take all cores, after a first one or without it."""
    needs = {"cores": CORES, "post_ms": 1e3 * post_s, "network_ms": 1e3 * network_s}
    pair = {"name": "pair", "workload": {"times_ms": [0] * requests}, **needs}
    if not warming:
        return system(f"table-{table}", [pair])
    first = {"name": "warming", "workload": {"times_ms": [0]}, **needs}
    return system(f"table-{table}", [first, {**pair, "after": "warming"}])


TABLES = {
    "6.1": concurrent("6.1", warming=False, post_s=POST_S, network_s=FAR_S),
    "6.2": concurrent("6.2", warming=True, post_s=0.0, network_s=FAR_S),
    "6.3": concurrent("6.3", warming=True, post_s=POST_S, network_s=NEAR_S),
}


def served(scenario: Scenario, name: str, seed: int) -> Run:
    """One run of a scheduler."""
    return Engine.of_scenario(scenario, seed).serve(scheduler(NAMES[name]))


def totals(scenario: Scenario, name: str, seeds: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Total time in s and number of loads of each run."""
    runs = [served(scenario, name, seed) for seed in range(seeds)]
    return (np.array([run.answered_ms.max() / 1e3 for run in runs]),
            np.array([len(run.load_model) for run in runs]))


def row(table: str, name: str, simulated_s: float, loads: float, printed_s: float | None = None,
        **more: Any) -> Row:
    """One row of the results."""
    return {"table": table, "scheduler": name, "simulated_s": round(float(simulated_s), 4),
            "cold_starts": round(float(loads), 3), "printed_s": printed_s, **more}


def of_tables(seeds: int) -> Iterator[Row]:
    """Tables 6.1 to 6.3: total time until the last request is done."""
    for table, scenario in TABLES.items():
        for name in (*PRINTED_S[table], "dynamic"):
            times_s, loads = totals(scenario, name, seeds)
            yield row(table, name, times_s.mean(), loads.mean(), PRINTED_S[table].get(name))


def of_sequences(seeds: int) -> Iterator[Row]:
    """Ten requests one after the other, and 2100."""
    for name in ("default", "colocation", "dynamic"):
        times_s, loads = totals(sequential(10), name, seeds)
        if name == "default":
            five = loads == TEN_COLD_STARTS["t5-small"]
            yield row("10 sequential", name, times_s[five].mean(), 5, TEN_S[name],
                      runs="with 5 cold starts")
            yield row("10 sequential", name, times_s.mean(), loads.mean(), runs="all")
        else:
            yield row("10 sequential", name, times_s.mean(), loads.mean(), TEN_S.get(name))
    for name in ("default", "colocation"):
        times_s, loads = totals(sequential(MANY), name, 3)
        yield row(f"{MANY} sequential", name, times_s.mean(), loads.mean(), MANY_S[name])


def of_cold_starts(seeds: int) -> Iterator[Row]:
    """How often the default scheduler has as many cold starts in ten requests as were printed."""
    _, loads = totals(sequential(10), "default", 10 * seeds)
    for model, printed in TEN_COLD_STARTS.items():
        yield {"table": "cold starts", "scheduler": "default", "model": model, "printed": printed,
               "simulated": round(float(loads.mean()), 2),
               "share_of_runs": round(float((loads == printed).mean()), 3)}


def break_even(load_s: float, most: int) -> int:
    """The number of requests from which on the default is close to colocation."""
    scenario = sequential(most, load_s=load_s)
    default, colocation = (served(scenario, name, 0).answered_ms / 1e3
                           for name in ("default", "colocation"))
    apart = (default - colocation) / np.arange(1, most + 1) >= CLOSE_S * (1 + 1e-9)
    return int(np.flatnonzero(apart)[-1]) + 2


def of_break_even() -> Iterator[Row]:
    """From which number of requests on cold starts do not matter."""
    costs = [("t5-small", LATER_LOAD_S, "fitted"),
             *((model, extra_s, "printed") for model, extra_s in EXTRA_S.items())]
    for model, extra_s, origin in costs:
        yield {"table": "break-even", "model": model, "cold_start_s": extra_s, "time": origin,
               "printed": BREAK_EVEN[model],
               "simulated": break_even(extra_s, BREAK_EVEN[model] * 5 // 4)}


class Observed(Engine):
    """Engine that notes when, and where, each request is sent to a machine."""

    def serve_by(self, name: str) -> tuple[Run, dict[int, tuple[float, bool]]]:
        """Serve the requests; return the run, and of each when it was sent and whether far."""
        self.sent: dict[int, tuple[float, bool]] = {}
        return self.serve(scheduler(name)), self.sent

    def process(self, request: int, machine: int, inference_on: int | None = None) -> None:
        """Note the request, and process it."""
        self.sent[request] = self.now_ms, machine != inference_on
        super().process(request, machine, inference_on)


def stages_s(scenario: Scenario, name: str, seed: int) -> NDArray[np.float64]:
    """Return the stages of each request in s, shape (n, 4), as the thesis divides its time.

    They are the scheduler (until a machine has it), the call to the inference server (the network
    and its queue, without the load of the model), all the time at the machine, and the call back.
    """
    spec = NAMES[name] + ("" if name == "default" else f":enqueue_ms={ENQUEUE_MS}")
    run, sent = Observed.of_scenario(scenario, seed).serve_by(spec)
    stages = np.zeros((run.requests, 4))
    for request, (sent_ms, far) in sent.items():
        stream = scenario.streams[run.stream[request]]
        batch = run.batch_of[request]
        came_ms = sent_ms + stream.pre_ms
        loads = ((run.load_worker == run.worker[batch]) & (run.load_model == run.model[batch])
                 & (run.load_end_ms <= run.start_ms[batch]))
        begin_ms = np.maximum(run.load_start_ms[loads], came_ms)
        loading_ms = np.maximum(run.load_end_ms[loads] - begin_ms, 0.0).sum()
        stages[request] = (sent_ms - run.arrival_ms[request],
                           run.start_ms[batch] - came_ms - loading_ms,
                           run.answered_ms[request] - sent_ms,
                           stream.network_back_ms if far else 0.0)
    return stages / 1e3


def of_stages(seeds: int) -> Iterator[Row]:
    """Figures 6.3 to 6.6: mean time of each stage."""
    parts = {"6.3": (sequential(10), ("default", "colocation")),
             **{f"6.{int(table[2]) + 3}": (scenario, tuple(PRINTED_S[table]))
                for table, scenario in TABLES.items()}}
    for figure, (scenario, names) in parts.items():
        for name in names:
            means = np.mean([stages_s(scenario, name, seed).mean(axis=0)
                             for seed in range(seeds)], axis=0)
            yield {"figure": figure, "scheduler": name, **dict(zip(
                ("scheduler_s", "call_s", "runtime_s", "back_s"), means.round(4).tolist(),
                strict=True))}


def of_each_request(seeds: int) -> Iterator[Row]:
    """Figure 6.2: latency of each of ten requests, with the cold starts where they are printed."""
    scenario = sequential(10)
    for name in ("default", "colocation"):
        for seed in range(100 * seeds):
            run = served(scenario, name, seed)
            latency_s = (run.answered_ms - run.arrival_ms) / 1e3
            cold = tuple((np.flatnonzero(latency_s > 2 * WARM_S) + 1).tolist())
            if cold == COLD_AT[name]:
                break
        else:
            continue
        yield {"scheduler": name, "cold_at": ", ".join(map(str, cold)), "seed": seed,
               **{f"request_{i + 1}_s": round(float(value), 3)
                  for i, value in enumerate(latency_s)}}


def rayserve() -> Scenario:
    """Return figure 3.1: a hundred requests at once for one replica, of at most four."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "figure-3.1", "duration_s": 1e4,
        "worker_types": [{"name": "replica", "count": REPLICAS, "active": 1,
                          "scale_up_ms": 1e3 * SCALE_UP_S}],
        "models": [{
            "name": "t5-small", "load_ms": 1e3 * REPLICA_LOAD_S, "first_load_ms": 1e3 * SET_UP_S,
            "latency": [{"worker_type": "replica", "batch": 1,
                         "latency_ms": 1e3 * INFERENCE_S}]}],
        "streams": [{"name": "translations", "model": "t5-small", "slo_ms": 1e9,
                     "workload": {"times_ms": [0.0] * AT_ONCE}}],
    })


def of_replicas() -> Iterator[Row]:
    """Figure 3.1: what each replica answers, and what its first and later requests take."""
    run = Engine.of_scenario(rayserve()).serve(scheduler(RAYSERVE))
    for worker in range(run.workers):
        batches = np.flatnonzero(run.worker == worker)
        batches = batches[np.argsort(run.start_ms[batches])]
        loads_ms = (run.load_end_ms - run.load_start_ms)[run.load_worker == worker].sum()
        took_s = (run.finish_ms - run.start_ms)[batches] / 1e3
        starts_ms = run.start_ms[batches]
        yield {"replica": worker, "requests": len(batches),
               "first_s": round(float(took_s[0] + loads_ms / 1e3), 3),
               "later_s": round(float(took_s[1:].mean()), 3),
               "begins_s": round(float((starts_ms[0] - loads_ms) / 1e3), 2),
               "answered_before": int((run.finish_ms <= starts_ms[0] - loads_ms + 1e-6).sum()),
               "last_answer_s": round(float(run.answered_ms.max() / 1e3), 2)}


def of_initialisation() -> Iterator[Row]:
    """Figure 3.2: a line through two models gives what a cold start of the others costs."""
    first, last = "t5-small", "t5-large"
    per_mb = (EXTRA_S[last] - EXTRA_S[first]) / (SIZE_MB[last] - SIZE_MB[first])
    for model, size_mb in SIZE_MB.items():
        yield {"model": model, "size_mb": size_mb,
               "printed_s": EXTRA_S.get(model, INITIALISED_S.get(model)),
               "line_s": round(EXTRA_S[first] + per_mb * (size_mb - SIZE_MB[first]), 2)}


def of_inference() -> Iterator[Row]:
    """Figure 3.2: processor time of an inference on one core, by T5 with random weights."""
    torch, transformers = map(import_module, ("torch", "transformers"))
    torch.set_num_threads(1)
    words, small_s = torch.randint(5, 30_000, (1, TOKENS)), 0.0
    for model, (width, inner, layers, heads) in SHAPES.items():
        t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(
            d_model=width, d_ff=inner, num_layers=layers, num_heads=heads,
            decoder_start_token_id=0)).eval()
        times_s = []
        for _ in range(REPEATS):
            begun_s = time.process_time()
            t5.generate(words, min_new_tokens=TOKENS, max_new_tokens=TOKENS, num_beams=BEAMS)
            times_s.append(time.process_time() - begun_s)
        measured_s = float(np.median(times_s))
        small_s = small_s or measured_s
        yield {"model": model, "measured_s": round(measured_s, 3),
               "of_small": round(measured_s / small_s, 2),
               "inference_s": round(WARM_S * measured_s / small_s, 2)}


def of_models(seeds: int) -> Iterator[Row]:
    """Figure 6.1 with all three models: ten requests, in the runs with the printed cold starts."""
    for model, extra_s in (("t5-small", LATER_LOAD_S), ("t5-base", EXTRA_S["t5-base"]),
                           *(("t5-large", cold_s) for cold_s in LARGE_COLD_S)):
        starts = TEN_COLD_STARTS[model]
        scenario = sequential(10, load_s=extra_s, infer_s=INFER_S[model],
                              first_load_s=extra_s + FIRST_LOAD_S - LATER_LOAD_S)
        times_s, loads = totals(scenario, "default", 2 * seeds)
        default_s = float(times_s[loads == starts].mean())
        colocation_s = float(totals(scenario, "colocation", 1)[0][0])
        yield {"model": model, "inference_s": INFER_S[model],
               "cold_start_s": extra_s, "cold_starts": starts,
               "share_of_runs": round(float((loads == starts).mean()), 3),
               "default_s": round(default_s, 2), "colocation_s": round(colocation_s, 2),
               "lower": round(1 - colocation_s / default_s, 4)}


def formulas_s(waiting: int, post_s: float, network_s: float) -> dict[str, float]:
    """Return the latency of a request behind others at a warm copy, by section 6.5."""
    cold_s, both_s = LATER_LOAD_S, WARM_S + post_s
    return {"colocation": max(cold_s + both_s, waiting * both_s),
            "colocation-queue": (waiting + 1) * both_s,
            "registry": network_s + both_s + waiting * WARM_S}


def of_formulas(seeds: int) -> Iterator[Row]:
    """Section 6.5: the formulas, and the last of requests that come at once after a first one."""
    for post_s, network_s in ((POST_S, FAR_S), (0.0, FAR_S), (POST_S, NEAR_S)):
        for waiting in (1, 2):
            scenario = concurrent("6.5", warming=True, post_s=post_s, network_s=network_s,
                                  requests=waiting + 1)
            for name, formula_s in formulas_s(waiting, post_s, network_s).items():
                latency_s = []
                for seed in range(seeds):
                    run = served(scenario, name, seed)
                    latency_s.append(float((run.answered_ms - run.arrival_ms)[1:].max() / 1e3))
                yield {"post_s": post_s, "network_s": network_s, "waiting": waiting,
                       "scheduler": name, "formula_s": round(formula_s, 3),
                       "simulated_s": round(float(np.mean(latency_s)), 3)}


def line(found: Row) -> str:
    """One row, as text."""
    if "table" not in found:
        return "  ".join(f"{name} {value}" for name, value in found.items())
    name = " ".join(str(found[key]) for key in ("scheduler", "model", "runs", "time")
                    if key in found)
    printed = found.get("printed_s", found.get("printed"))
    simulated = found.get("simulated_s", found.get("simulated"))
    apart = "" if printed is None else f"{100 * (simulated / printed - 1):+7.2f} %"
    return (f"{found['table']:16} {name:27} {'-' if printed is None else printed:>9} "
            f"{simulated:>10} {apart}")


def two_classes(critical_rps: float, other_rps: float, best_effort: bool) -> Scenario:
    """Return two streams on machines that hold the model, each request with a core for a while."""
    document = {"model": "t5", "slo_ms": 1e9, "post_ms": 1e3 * POST_S, "cores": 1}
    streams = [{**document, "name": name, "workload": {"load_qps": rate}, **more}
               for name, rate, more in (
                   ("critical", critical_rps, {}),
                   ("other", other_rps, {"best_effort": best_effort})) if rate]
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "classes", "duration_s": CLASSES_S,
        "worker_types": [{"name": "machine", "count": MACHINES, "cores": CORES}],
        "models": [{"name": "t5", "load_ms": 1e3 * LATER_LOAD_S, "latency": [
            {"worker_type": "machine", "batch": 1, "latency_ms": 1e3 * WARM_S}]}],
        "streams": streams, "start": [{"worker": "machine", "models": ["t5"]}],
    })


def of_classes(seeds: int) -> Iterator[Row]:
    """Section 2.3.2: latency-critical requests alone, and with others that give way or do not."""
    for others, other_rps, best_effort in (
            ("none", 0.0, False), ("best effort", OTHER_RPS, True),
            ("latency-critical, too", OTHER_RPS, False)):
        waits: dict[str, list[float]] = {}
        busy = []
        for seed in range(max(seeds // 20, 1)):
            scenario = two_classes(CRITICAL_RPS, other_rps, best_effort)
            run, sent = Observed.of_scenario(scenario, seed).serve_by(NAMES["default"])
            for request, (sent_ms, _) in sent.items():
                waits.setdefault(scenario.streams[run.stream[request]].name, []).append(
                    (sent_ms - run.arrival_ms[request]) / 1e3)
            until_ms = 1e3 * CLASSES_S
            begin_ms = np.array([sent[request][0] for request in range(run.requests)])
            held_ms = np.minimum(run.answered_ms, until_ms) - np.minimum(begin_ms, until_ms)
            busy.append(held_ms.sum() / (until_ms * MACHINES * CORES))
        yield {"others": others, "cores_used": round(float(np.mean(busy)), 3), **{
            f"{name}_{value}": None if name not in waits else round(float(figure), 2)
            for name in ("critical", "other")
            for value, figure in (("wait_s", np.mean(waits.get(name, [0.0]))),
                                  ("wait_p99_s", np.quantile(waits.get(name, [0.0]), 0.99)))}}


PARTS: Mapping[str, Callable[[int], Iterator[Row]]] = {
    "tables": of_tables, "sequences": of_sequences, "cold-starts": of_cold_starts,
    "break-even": lambda _: of_break_even(),
}
FIGURES: Mapping[str, Callable[[int], Iterator[Row]]] = {
    "figure-3.1": lambda _: of_replicas(), "figure-3.2": lambda _: of_initialisation(),
    "figure-6.1": of_models, "figure-6.2": of_each_request, "stages": of_stages,
    "formulas": of_formulas, "classes": of_classes,
}
MEASURED: Mapping[str, Callable[[int], Iterator[Row]]] = {"inference": lambda _: of_inference()}


def main() -> int:
    """Run everything; print and write the rows."""
    command = parser_of(__doc__)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    command.add_argument("--seeds", type=int, default=200, help="runs of each random scheduler")
    command.add_argument("--figures", action="store_true", help="add the figures")
    command.add_argument("--part", action="append", choices=[*PARTS, *FIGURES, *MEASURED],
                         help="compute only this; repeat for several")
    command.add_argument("--scenarios", type=Path, metavar="FOLDER", help="write the scenarios")
    options = command.parse_args()
    if options.seeds < 1:
        command.error(f"--seeds has to be 1 or more, got {options.seeds}")
    print(f"{'table':16} {'scheduler or model':27} {'printed':>9} {'simulated':>10} difference")
    rows = []
    parts = {**PARTS, **FIGURES, **MEASURED}
    for name in options.part or [*PARTS, *(FIGURES if options.figures else ())]:
        for result in parts[name](options.seeds):
            print(line(result), flush=True)
            rows.append(result)
    if options.json is not None:
        write_atomic(options.json, json.dumps(rows, indent=1) + "\n")
    if options.scenarios is not None:
        options.scenarios.mkdir(parents=True, exist_ok=True)
        for scenario in (*TABLES.values(), sequential(10), sequential(MANY), rayserve()):
            write_scenario(scenario, options.scenarios / f"{scenario.name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
