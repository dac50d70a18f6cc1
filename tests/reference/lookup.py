"""A slow and obvious twin of the runtime, and the conformance vectors made with it.

It shares no code with the runtime: levels of all axes are found by linear scans, the load by
counting every arrival anew. ``python -m tests.reference.lookup`` prints the vectors' file.
"""

import itertools
import json
import math
from typing import Any

Case = dict[str, Any]

ERROR = {"error": True}
TOLERANCE_MS = 1e-6

POLICY: Case = {
    "format": "ramsis.policy/1",
    "created_by": "by hand",
    "models": [
        {"name": "small", "accuracy": 0.6, "latency_ms": [10.1, 14.0, 18.0, 22.0],
         "latency_origin": "mmme"},
        {"name": "medium", "accuracy": 0.7, "latency_ms": [33.3, 50.0, 66.7, 83.4],
         "latency_origin": "mmme"},
        {"name": "large", "accuracy": 0.8, "latency_ms": [90.0, 140.0, 190.0, 240.0],
         "latency_origin": "mmme"},
    ],
    "slo_ms": 100.0,
    "workers": 4,
    "load_qps": 80.0,
    "service": "p95",
    "arrivals": {"process": "poisson"},
    "dispatch": "round-robin",
    "batching": "variable",
    "late": "serve",
    "objective": "per-query",
    "violation_price": 0.0,
    "table": {
        "axes": {"idle": [0, 1], "queued": [0, 1, 2, 3],
                 "slack_ms": [0.0, 0.1, 33.300000000000004, 66.7, 90.0]},
        "actions": [[0, 1], [1, 1], [2, 1], [0, 2], [1, 2], [0, 3], [1, 3], [0, 4]],
        "rows": [[0, 0, 3, 1, 4, 2], [0, 3, 1, 0, 2, 1, 3, 4, 4, 2],
                 [0, 5, 1, 0, 2, 3, 3, 6, 4, 4]],
        "index": [[0, 1, 2]],
        "longer_queue": 7,
    },
    "expectations": {
        "accuracy": 0.75, "violation_rate": 0.2, "effective_accuracy": 0.6,
        "per_decision": {"accuracy": 0.76, "violation_rate": 0.25},
        "batch_size": {"mean": 1.25, "p50": 1.0, "p99": 3.0},
        "queue_length": {"mean": 1.5, "p50": 1.0, "p99": 3.0},
        "slack_ms": {"mean": 80.0, "p50": 90.0, "p99": 100.0},
        "model_share": {"small": 0.25, "medium": 0.5, "large": 0.25},
        "utilisation": 0.9, "full_queue_rate": 0.01, "overloaded": False,
        "capacity_qps": 120.0, "upper_bound": 0.65,
    },
    "certificate": {
        "solver": "policy-iteration", "converged": True, "iterations": 4,
        "bellman_residual": 1e-12, "gain": 0.6, "gain_lower": 0.6, "gain_upper": 0.6,
        "truncated_mass": 1e-12, "nodes_per_bin": 2, "tolerance": None,
    },
    "inputs": {"profile": "sha256:0", "profile_name": "by-hand", "settings": "sha256:1"},
}


DROPPING: Case = {
    **POLICY,
    "late": "drop",
    "table": {
        **POLICY["table"],
        "rows": [[0, -2, 1, 0, 3, 1, 4, 2], [0, -2, 2, 1, 3, 4, 4, 2], [0, -2, 4, 4]],
        "longer_queue": -2,
    },
}

AS_LAST: Case = {**DROPPING, "table": {**DROPPING["table"], "longer_queue": -3}}
"""A longer queue is treated as one of the last level."""

PADDED: Case = {
    **POLICY,
    "models": [{**POLICY["models"][0], "run_as": [1, 4, 4, 4],
                "latency_ms": [10.1, 16.0, 16.0, 16.0],
                "latency_origin": "mppm"},
               {**POLICY["models"][1], "run_as": [1, 2, 8, 8],
                "latency_ms": [33.3, 50.0, 60.0, 60.0],
                "latency_origin": "mmpp"}, POLICY["models"][2]],
}
"""Batches that are run as larger ones."""

CENTRAL: Case = {
    **POLICY,
    "models": [
        {"name": "small", "accuracy": 0.6, "latency_ms": [10.1, 14.0, 18.0, 22.0]},
        {"name": "medium", "accuracy": 0.7, "latency_ms": [33.3, 50.0]},
        {"name": "large", "accuracy": 0.8, "latency_ms": [90.0]},
    ],
    "workers": 9,
    "dispatch": "central-queue",
    "violation_price": 0.5,
    "late": "drop",
    "table": {
        "axes": {"idle": [0, 1, 2, 5, 9], "queued": [0, 1, 2, 4, 7],
                 "slack_ms": [0.0, 10.1, 33.300000000000004, 66.7, 90.0]},
        "actions": [[0, 1], [1, 1], [0, 2], [0, 4], [2, 1]],
        "rows": [[0, -2, 1, 0, 2, 1, 3, -1], [0, -2, 1, 0, 3, -1], [0, 2, 4, -1],
                 [0, -2, 2, 3, 3, -1, 4, 2], [0, -1, 2, 4]],
        "index": [[0, 1, 2, 3], [0, 4, 2, 3], [4, 4, 3, 3], [4, 1, 2, 2]],
        "longer_queue": -2,
    },
}
"""Nine workers with one queue."""

CLASSES: Case = {
    **CENTRAL,
    "slo_classes": [{"slo_ms": 40.0, "share": 0.25}, {"slo_ms": 100.0, "share": 0.75}],
    "table": {**CENTRAL["table"], "longer_queue": 3},
}
"""The same with two SLO classes, and a longer queue that is served."""


OPINIONS: Case = {
    **CENTRAL,
    "models": [*CENTRAL["models"][:2], {**CENTRAL["models"][2], "latency_ms": [30.0, 34.5, 41.25],
                                        "run_as": [1, 4, 4]}],
    "cascade": {
        "second": 2, "levels_per_fresh": 0.1, "levels_per_unsure": 0.7, "step_ms": 12.5, "bins": 8,
        "actions": [[0, 1], [1, 1], [0, 2], [0, 3], [1, 3]],
        "rows": [[0, -2, 1, 0, 3, 1, 6, -1], [0, 0, 2, 2, 5, -1, 7, 1], [0, -2, 1, 3, 4, 4],
                 [0, 0]],
        "index": [[0, 1, 2], [3, 1, 1], [0, 3, 2]],
        "unsure_bins": [[4, 2, 3], [1, 0, 3], [0, 9, 0]],
        "gather": [3, 2, 2], "least": [2, 4, 1], "last_call_ms": 7.3,
        "second_ms": [30.1, 34.6, 41.25],
        "models": [
            {"thresholds": [0.25, 0.5, 0.8], "share": [0.1, 0.2, 0.3, 0.4],
             "increment": [0.3, 0.1, 0.05, -0.01]},
            {"thresholds": [-1.5, 3.25], "share": [0.25, 0.25, 0.5],
             "increment": [0.2, 0.1, 0.0]},
            {"thresholds": [], "share": [], "increment": []}],
        "promise": {
            "effective_accuracy": 0.7, "effective_half_width": 0.001, "violation_rate": 0.0,
            "violation_half_width": 0.0, "second_opinions": 0.3, "response_mean_ms": 50.0,
            "response_p50_ms": 50.0, "response_p95_ms": 90.0, "response_p99_ms": 95.0,
            "gain": 0.02, "gain_error": 0.001, "upper_bound": 0.75, "queries": 100000, "runs": 10,
            "seed": 0},
    },
}
"""Second opinions by the largest model."""

ONE_LEVEL: Case = {
    **OPINIONS,
    "cascade": {
        **OPINIONS["cascade"], "levels_per_fresh": 0.0, "levels_per_unsure": 0.0, "bins": 1,
        "rows": [[0, 0]], "index": [[0]], "actions": [[0, 1]], "unsure_bins": [[2, 1, 0]],
        "gather": [2], "least": [1], "last_call_ms": 0.0, "second_ms": [30.0, 30.0]},
}
"""The same with as few numbers as there can be, and equal times of both batches."""


def decide(policy: Case, idle: int | None, queued: int, slack_ms: float) -> Case:
    """The answer to a lookup, or :data:`ERROR`.

    ``idle`` is None where it is left out.
    """
    table, axes = policy["table"], policy["table"]["axes"]
    if idle is None and axes["idle"] == [0, 1]:
        idle = 1
    if idle is None or math.isnan(slack_ms) or queued < 1 or idle < 0:
        return ERROR
    longer = queued > axes["queued"][-1]
    if longer and table["longer_queue"] == -2:
        return {"drop": True}
    if idle == 0:
        return {"wait_below_ms": None}
    if longer and table["longer_queue"] != -3:
        return _answer(policy, [table["longer_queue"]], 0)
    i = max(i for i, level in enumerate(axes["idle"]) if level <= idle) - 1
    n = max(n for n, level in enumerate(axes["queued"]) if level <= queued) - 1
    j = max([j for j, low in enumerate(axes["slack_ms"]) if low - TOLERANCE_MS <= slack_ms],
            default=0)
    row = table["rows"][table["index"][i][n]]
    codes = [[code for start, code in zip(row[::2], row[1::2], strict=True) if start <= bin_][-1]
             for bin_ in range(len(axes["slack_ms"]))]
    return _answer(policy, codes, j)


def decide_when_slow(
    policy: Case, idle: int | None, queued: int, slack_ms: float, slowness: float
) -> Case:
    """The answer when batches take longer, with the slack as it is."""
    slack_ms /= slowness
    if policy["dispatch"] == "central-queue" and queued > 0:
        many = decide(policy, idle, math.floor(queued * slowness), slack_ms)
        if many.get("batch", 0) <= queued:
            return many
    return decide(policy, idle, queued, slack_ms)


def _answer(policy: Case, codes: list[int], j: int) -> Case:
    """The answer of bin j of a row."""
    if codes[j] == -2:
        return {"drop": True}
    if codes[j] == -1:
        low = j
        while low > 0 and codes[low - 1] == -1:
            low -= 1
        below = policy["table"]["axes"]["slack_ms"][low] - TOLERANCE_MS
        return {"wait_below_ms": below if low else None}
    return _answer_of(policy, *policy["table"]["actions"][codes[j]])


def _answer_of(policy: Case, model: int, batch: int) -> Case:
    """The answer to run a batch on a model."""
    chosen = policy["models"][model]
    sizes = dict(enumerate(chosen.get("run_as", []), 1))
    return {"model": chosen["name"], "batch": batch, "run_as": sizes.get(batch, batch)}


def opinion_level(cascade: Case, fresh: int, unsure: int) -> int:
    """The level of what waits."""
    most = len(cascade["gather"])
    level = math.floor(fresh * min(cascade["levels_per_fresh"], most)
                       + unsure * min(cascade["levels_per_unsure"], most))
    return min(level, most - 1)


def decide_opinion(
    policy: Case, fresh: int, slack_ms: float, unsure: int, unsure_slack_ms: float,
    level: int | None = None,
) -> Case:
    """What to do with an idle worker; ``level`` is that of a kept answer, if it is asked again."""
    cascade = policy["cascade"]
    if level is None:
        level = opinion_level(cascade, fresh, unsure)
    times = dict(enumerate(cascade["second_ms"], 1))
    gather, reached = cascade["gather"][level], unsure_slack_ms + TOLERANCE_MS
    if unsure and times[min(unsure, gather)] > reached:
        return {"keep": True, "level": level}
    fit = max([batch for batch in times if unsure and batch <= unsure and times[batch] <= reached],
              default=0)
    second = _answer_of(policy, cascade["second"], fit) | {"second": True} if fit else {}
    if fit and (fit >= gather or unsure_slack_ms - times[fit] - cascade["last_call_ms"]
                <= TOLERANCE_MS):
        return second
    wait_fresh_ms = None
    if fresh:
        line = cascade["index"][level]
        row = cascade["rows"][line[min(fresh, len(line)) - 1]]
        start, code = next(
            (start, code) for start, code in zip(row[-2::-2], row[::-2], strict=True)
            if start == 0 or start * cascade["step_ms"] - TOLERANCE_MS <= slack_ms)
        if code == -2:
            return {"drop": True}
        if code >= 0:
            return _answer_of(policy, *cascade["actions"][code])
        wait_fresh_ms = start * cascade["step_ms"] - 2.0 * TOLERANCE_MS
    if fit and fit >= cascade["least"][level]:
        return second
    return {"wait_fresh_ms": wait_fresh_ms,
            "wait_unsure_ms": times[fit] + cascade["last_call_ms"] if fit else None}


def decide_opinion_when_slow(
    policy: Case, slowness: float, fresh: int, slack_ms: float, unsure: int,
    unsure_slack_ms: float, level: int | None = None,
) -> Case:
    """The same when batches take longer, with the slacks as they are."""
    slack_ms, unsure_slack_ms = slack_ms / slowness, unsure_slack_ms / slowness
    more = math.floor(fresh * slowness)
    many = decide_opinion(policy, more, slack_ms, unsure, unsure_slack_ms, level)
    if "second" in many or many.get("batch", 0) <= fresh:
        return many
    return decide_opinion(policy, fresh, slack_ms, unsure, unsure_slack_ms, level)


def is_unsure(policy: Case, level: int, model: str, confidence: float) -> bool:
    """Whether a model's first answer is unsure at a level."""
    cascade = policy["cascade"]
    number = [of["name"] for of in policy["models"]].index(model)
    bins = cascade["models"][number]
    if not bins["share"]:
        return False
    edges = [*bins["thresholds"], math.inf]
    return any(confidence < edge for edge in edges[:cascade["unsure_bins"][level][number]])


def route(shares: list[float], uniform: float) -> int:
    """The station of a query: the first whose share, with those before it, reaches the number."""
    total, upto = sum(shares), 0.0
    for station, share in enumerate(shares):
        upto += share
        if upto >= uniform * total:
            return station
    return len(shares) - 1


def join(rule: str, in_system: list[int], joined: list[int]) -> int:
    """The queue that a request joins after those that joined these queues."""
    if rule == "central-queue":
        return 0
    if rule == "round-robin":
        return len(joined) % len(in_system)
    short = [queue for queue, held in enumerate(in_system) if held <= 4 * min(in_system)]
    ago = [joined[::-1].index(queue) if queue in joined else math.inf for queue in short]
    return short[ago.index(max(ago))]


def choose(
    levels: list[tuple[float, str, float]], load_qps: float, process: str | None, slowness: float
) -> Case:
    """The answer of a set with these (load, process label, slowness), or :data:`ERROR`."""
    labels = {label for _, label, _ in levels}
    if process is None and len(labels) == 1:
        (process,) = labels
    if process not in labels or math.isnan(load_qps) or load_qps < 0:
        return ERROR
    if not 0 < slowness < math.inf:
        return ERROR
    known = sorted(own for _, label, own in levels if label == process)
    level_slowness, left = known[-1], 1.0
    for own in reversed(known):
        if own >= slowness:
            level_slowness = own
    if level_slowness < slowness:
        left = slowness / level_slowness
    loads = [load for load, label, own in levels if label == process and own == level_slowness]
    enough = [load for load in loads if load >= load_qps]
    return {"level_qps": min(enough) if enough else max(loads), "level_slowness": level_slowness,
            "above_highest": not enough, "slowness_left": left}


def observed_load_qps(
    arrivals: list[tuple[float, int]], first_call_ms: float, now_ms: float, window_ms: float
) -> float:
    """The load monitor's answer at ``now_ms`` after these (time, count)."""
    count = sum(n for t, n in arrivals if now_ms - window_ms < t <= now_ms)
    span_ms = now_ms - first_call_ms
    if span_ms < window_ms / 10:
        span_ms = window_ms / 10
    if span_ms > window_ms:
        span_ms = window_ms
    return count * 1000 / span_ms


def _written(number: float) -> float | str:
    """JSON has no infinities and no NaN: they are written as texts."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def lookup_cases(policy: Case) -> list[Case]:
    """Levels of all axes and their neighbours, with slacks at and beside every edge."""
    axes = policy["table"]["axes"]
    edges = [*axes["slack_ms"], *(edge - TOLERANCE_MS for edge in axes["slack_ms"]),
             policy["slo_ms"]]
    around = [f(edge) for edge in edges for f in (
        lambda x: math.nextafter(x, -math.inf), float, lambda x: math.nextafter(x, math.inf))]
    slacks = [-math.inf, -250.0, -0.0, *around, 1e308, math.inf, math.nan]
    queued = sorted({-1, 0, *(level + step for level in axes["queued"][1:] for step in (0, 1)),
                     1_000_000_000})
    idle = [None, -1, 0, *(level + step for level in axes["idle"][1:] for step in (0, 1)), 40]
    return [_case(policy, i, n, slack)
            for i, n, slack in itertools.product(idle, queued, slacks)
            if (i in (None, 1, 5) and 1 <= n <= axes["queued"][-1])
            or slack in (-math.inf, 0.0, 90.0) or math.isnan(slack)]


def slow_cases(policy: Case) -> list[Case]:
    """Some levels and numbers between, slacks that are at an edge when they are divided."""
    axes = policy["table"]["axes"]
    found: list[Case] = []
    for slowness in (1.25, 1.5, 2.5):
        slacks = [-1.0, 0.0, *(slowness * (edge + step) for edge in axes["slack_ms"]
                               for step in (-0.25, 0.25)), policy["slo_ms"]]
        for idle, queued, slack in itertools.product(
                sorted({0, 1, axes["idle"][-1]}), range(0, axes["queued"][-1] + 2), slacks):
            answer = decide_when_slow(policy, idle, queued, slack, slowness)
            found.append({"slowness": slowness, "idle": idle, "queued": queued, "slack_ms": slack,
                          **answer})
    return found[::7]  # every 7th tells as much


def _case(policy: Case, idle: int | None, queued: int, slack_ms: float) -> Case:
    case: Case = {} if idle is None else {"idle": idle}
    return {**case, "queued": queued, "slack_ms": _written(slack_ms),
            **decide(policy, idle, queued, slack_ms)}


def opinion_cases(policy: Case) -> list[Case]:
    """All counts about the levels, with slacks at and beside every edge of either queue."""
    cascade = policy["cascade"]
    fresh_edges = [start * cascade["step_ms"] - TOLERANCE_MS for row in cascade["rows"]
                   for start in row[2::2]]
    unsure_edges = [f(time) for time in cascade["second_ms"] for f in (
        lambda time: time, lambda time: time - TOLERANCE_MS,
        lambda time: time + cascade["last_call_ms"],
        lambda time: time + cascade["last_call_ms"] + TOLERANCE_MS)]
    fresh_slacks, unsure_slacks = (sorted({f(edge) for edge in edges for f in (
        lambda x: math.nextafter(x, -math.inf), float, lambda x: math.nextafter(x, math.inf))})
        for edges in (fresh_edges or [12.5], unsure_edges))
    ends = [-math.inf, -5.0, 0.0, 99.0, math.inf]
    cases = []
    for fresh, unsure in itertools.product((0, 1, 2, 3, 4, 11, 30, 1_000_000_000),
                                           (0, 1, 2, 3, 7)):
        slacks = [*itertools.product([*fresh_slacks, *ends] if fresh else [0.0],
                                     [20.0, 33.0, 80.0] if unsure else [0.0]),
                  *itertools.product([5.0, 70.0] if fresh else [0.0],
                                     [*unsure_slacks, *ends] if unsure else [0.0])]
        cases += [_opinion_case(policy, fresh, slack, unsure, unsure_slack)
                  for slack, unsure_slack in slacks]
    kept = [_opinion_case(policy, fresh, 60.0, unsure, slack, level)
            for level, fresh, unsure, slack in itertools.product(
                range(len(cascade["gather"])), (0, 1, 9), (0, 1, 3), (29.0, 31.0, 36.0, 60.0))]
    return cases[::9] + kept[::2]  # these tell as much


def slow_opinion_cases(policy: Case) -> list[Case]:
    """Some counts and slacks with slow service."""
    cases = []
    for slowness, fresh, unsure, slack, unsure_slack in itertools.product(
            (1.25, 1.5, 2.5), (0, 1, 2, 3, 5), (0, 1, 3), (10.0, 50.0, 120.0),
            (25.0, 48.0, 60.0, 110.0)):
        answer = decide_opinion_when_slow(policy, slowness, fresh, slack, unsure, unsure_slack)
        cases.append({"slowness": slowness, "fresh": fresh, "slack_ms": slack, "unsure": unsure,
                      "unsure_slack_ms": unsure_slack, **answer})
    return cases[::3]


def _opinion_case(
    policy: Case, fresh: int, slack_ms: float, unsure: int, unsure_slack_ms: float,
    level: int | None = None,
) -> Case:
    asked: Case = {} if level is None else {"kept_at": level}
    return {**asked, "fresh": fresh, "slack_ms": _written(slack_ms), "unsure": unsure,
            "unsure_slack_ms": _written(unsure_slack_ms),
            **decide_opinion(policy, fresh, slack_ms, unsure, unsure_slack_ms, level)}


def unsure_cases(policy: Case) -> list[Case]:
    """Levels of what waits, and first answers at and beside each threshold."""
    cascade = policy["cascade"]
    cases: list[Case] = [
        {"fresh": fresh, "unsure": unsure, "level": opinion_level(cascade, fresh, unsure)}
        for fresh, unsure in itertools.product((0, 1, 3, 9, 10, 13, 19, 20, 1_000_000_000),
                                               (0, 1, 2, 3, 10, 1_000_000_000))]
    for level, (model, bins) in itertools.product(
            range(len(cascade["gather"])), zip(policy["models"], cascade["models"], strict=True)):
        around = [f(edge) for edge in bins["thresholds"] or [0.5] for f in (
            lambda x: math.nextafter(x, -math.inf), float, lambda x: math.nextafter(x, math.inf))]
        cases += [{"level": level, "model": model["name"], "confidence": _written(confidence),
                   "is_unsure": is_unsure(policy, level, model["name"], confidence)}
                  for confidence in (-math.inf, *around, 1e300, math.inf, math.nan)]
    return cases


def routing_cases() -> list[Case]:
    """Requests that join queues one after the other, by every dispatch rule."""
    lengths = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 1], [2, 2, 1], [2, 2, 2], [0, 0, 1],
               [3, 0, 0], [1, 5, 1], [4, 1, 1], [5, 1, 1], [5, 2, 9], [8, 2, 9], [8, 8, 9]]
    found = []
    for rule in ("round-robin", "shortest-queue", "central-queue"):
        joined: list[int] = []
        steps = []
        for three in lengths:
            in_system = three[:1] if rule == "central-queue" else three
            joined.append(join(rule, in_system, joined))
            steps.append({"in_system": in_system, "joins": joined[-1]})
        found.append({"dispatch": rule, "queues": len(steps[0]["in_system"]), "steps": steps})
    return found


def station_cases() -> list[Case]:
    """Choices among stations by shares."""
    return [{"shares": shares, "uniform": uniform, "station": route(shares, uniform)}
            for shares in ([1.0], [0.25, 0.75], [0.5, 0.125, 0.375])
            for uniform in (0.0, 0.25, math.nextafter(0.25, 1.0), 0.5, 0.625, 0.9999)]


def set_cases() -> list[Case]:
    """Sets of levels, each with loads asked for in order."""
    poisson = {"process": "poisson"}
    bursty = {"process": "negative-binomial", "dispersion": 4.0}
    switching = {"process": "mmpp", "switch_per_s": [0.1, 2], "factors": [0.5, 1.5]}
    labels = ["poisson", "negative-binomial:dispersion=4",
              "mmpp:factors=[0.5,1.5],switch_per_s=[0.1,2]"]
    one = [(load, poisson, labels[0]) for load in (1200.0, 400.0, 62.5)]
    several = [(400.0, poisson, labels[0]), (400.0, bursty, labels[1]),
               (800.0, bursty, labels[1]), (100.0, switching, labels[2])]
    rising = [0.0, 62.5, math.nextafter(62.5, math.inf), 400.0, 400.5, 1200.0,
              math.nextafter(1200.0, math.inf), 1300.0, 5000.0, 1200.0, 1201.0, math.inf, 10.0,
              -1.0, math.nan]
    slow = [(load, poisson, labels[0], slowness) for slowness, loads in (
        (1.3, (400.0, 900.0)), (1.0, (1200.0, 400.0)), (1.15, (400.0,))) for load in loads]
    speeds = [0.5, 1.0, math.nextafter(1.0, 2.0), 1.15, 1.2, 1.3, math.nextafter(1.3, 2.0), 1.56,
              1e9, 0.0, -1.0, math.inf, math.nan]
    asked: list[tuple[list[Any], list[tuple[float, str | None, float]]]] = [
        (one, [(load, None, 1.0) for load in rising]),
        (several, [(load, label, 1.0) for label in [*labels, None, "weibull"]
                   for load in (50.0, 400.0, 500.0, 900.0, 901.0)]),
        (slow, [(load, None, slowness) for slowness in speeds for load in (
            300.0, 400.0, 1200.0, 300.0, math.nan)]),
        (one, [(400.0, "poisson", slowness) for slowness in speeds]),
    ]
    return [_one_set(members, loads) for members, loads in asked]


def _one_set(members: list[Any], asked: list[tuple[float, str | None, float]]) -> Case:
    levels = [(load, arrivals, label, *(slowness or [1.0]))
              for load, arrivals, label, *slowness in members]
    keys = [(load, label, slowness) for load, _, label, slowness in levels]
    above: set[str | None] = set()
    cases = []
    for load, process, slowness in asked:
        answer = dict(choose(keys, load, process, slowness))
        if "error" not in answer:
            answer["calls_back"] = answer["above_highest"] and process not in above
            (above.add if answer["above_highest"] else above.discard)(process)
        cases.append({"load_qps": _written(load), "process": process,
                      "slowness": _written(slowness), **answer})
    return {"levels": [{"load_qps": load, "slowness": slowness, "arrivals": arrivals,
                        "label": label} for load, arrivals, label, slowness in levels],
            "cases": cases}


def monitor_cases() -> list[Case]:
    """Sequences of calls to a load monitor."""
    refused: list[Case] = [{"record_ms": 1.0, "count": 1}, {"record_ms": 0.5, "count": 1},
                           {"load_at_ms": 0.0}, {"record_ms": 2.0, "count": 0},
                           {"record_ms": "NaN", "count": 1}, {"load_at_ms": "Infinity"},
                           {"load_at_ms": 100.0}]
    steady = [{"record_ms": float(t), "count": 1} for t in range(0, 600, 50)]
    return [
        _one_monitor(500.0, [{"load_at_ms": 0.0}, {"load_at_ms": 600.0}]),
        _one_monitor(500.0, [{"record_ms": 7.0, "count": 3}, {"load_at_ms": 7.0},
                             {"load_at_ms": 57.0}, {"load_at_ms": 107.0},
                             {"load_at_ms": math.nextafter(507.0, 0.0)}, {"load_at_ms": 507.0}]),
        _one_monitor(500.0, [*steady, {"load_at_ms": 550.0}, {"load_at_ms": 575.0},
                             {"load_at_ms": 800.0}, {"record_ms": 800.0, "count": 100},
                             {"load_at_ms": 800.0}, {"load_at_ms": 5000.0}]),
        _one_monitor(100.0, refused),
    ]


def _one_monitor(window_ms: float, steps: list[Case]) -> Case:
    arrivals: list[tuple[float, int]] = []
    times: list[float] = []
    answered = []
    for step in steps:
        now = float(step["record_ms"] if "record_ms" in step else step["load_at_ms"])
        bad = not math.isfinite(now) or any(now < t for t in times) or step.get("count", 1) < 1
        if bad:
            answered.append({**step, **ERROR})
            continue
        times.append(now)
        if "count" in step:
            arrivals.append((now, step["count"]))
            answered.append(step)
        else:
            load = observed_load_qps(arrivals, times[0], now, window_ms)
            answered.append({**step, "load_qps": load})
    return {"window_ms": window_ms, "steps": answered}


def vectors() -> Case:
    """All vectors: lookups, second opinions, dispatch, stations, levels, and load monitors.

    The last lookups are those of slow service.
    """
    plain = [POLICY, DROPPING, AS_LAST, PADDED, CENTRAL, CLASSES]
    return {"format": "ramsis.lookup-vectors/1",
            "lookups": [*({"policy": policy, "cases": lookup_cases(policy)} for policy in plain),
                        *({"policy": policy, "cases": slow_cases(policy)}
                          for policy in (DROPPING, CENTRAL))],
            "second_opinions": [
                {"policy": policy, "cases": opinion_cases(policy) + slow_opinion_cases(policy),
                 "unsure": unsure_cases(policy)} for policy in (OPINIONS, ONE_LEVEL)],
            "dispatch": routing_cases(), "stations": station_cases(), "sets": set_cases(),
            "monitors": monitor_cases()}


def vectors_text() -> str:
    """The vectors' file: one case to a line."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {lines(value)}"
                              for key, value in vectors().items()) + "\n}\n"


def lines(value: Any) -> str:
    """A value as JSON, long lists and objects an item to a line."""
    nested = isinstance(value, (dict, list)) and len(json.dumps(value)) > 160
    if nested and isinstance(value, dict):
        return "{" + ",\n ".join(f"{json.dumps(k)}: {lines(v)}" for k, v in value.items()) + "}"
    if nested:
        return "[" + ",\n ".join(map(lines, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    print(vectors_text(), end="")
