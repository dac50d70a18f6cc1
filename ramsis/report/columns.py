"""Columns of results by kind of row, for the tables of the terminal and of pages.

A page shows all columns with a value; the terminal leaves out wide ones unless asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramsis.tables import Column, with_values

LOAD = Column("load_qps", "load (QPS)", ".6g")
OPINIONS = (
    Column("second_opinions", "second opinions", ".1%"),
    Column("gain", "gain by them", ".4f"),
    Column("gain_error", "± (s.e.)", ".4f", wide=True),
)

# What a policy promises for a load, and for service times longer than profiled by a factor.
PROMISED = (
    LOAD,
    Column("slowness", "slowness", "g"),
    Column("expected_accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective accuracy", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
)

# Schedulers and policies in simulation.
SIMULATED = (
    Column("label", "scheduler"),
    LOAD,
    Column("accuracy", "accuracy", ".4f"),
    Column("expected_violation_rate", "violations, promised", ".4%", wide=True),
    Column("violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective accuracy, promised", ".4f", wide=True),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("effective_accuracy_half_width", "± (95 %)", ".4f"),
    Column("upper_bound", "upper bound", ".4f"),
    Column("certified_gap", "certified gap", ".2%", wide=True),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
    Column("recovery_ms", "recovery (ms)", ".0f"),
    Column("utilisation", "utilisation", ".1%", wide=True),
    Column("padding", "padding", ".1%"),
    OPINIONS[0],
    Column("models", "models (share)", wide=True),
)

# The fewest workers, or the cheapest of several types.
_CAPACITY = (
    Column("scheduler", "scheduler"),
    LOAD,
    Column("mix", "workers by type"),
    Column("workers", "workers", "d"),
    Column("workers_bound", "lower bound", "d"),
    Column("cost", "cost", "g"),
    Column("cost_bound", "lower bound (cost)", "g"),
    Column("gap", "above the bound", ".6g", wide=True),
    Column("expected_accuracy", "accuracy, promised", ".4f", wide=True),
    Column("accuracy", "accuracy", ".4f"),
    Column("accuracy_half_width", "± (95 %)", ".4f", wide=True),
    Column("expected_violation_rate", "violations, promised", ".4%", wide=True),
    Column("violation_rate", "violations", ".4%"),
    Column("violation_rate_half_width", "± (95 %)", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    *OPINIONS,
    Column("clear_word", "certain"),
)

# Kinds of dispatch in a plan, and the workers as the load grows.
PLANNED = (
    Column("dispatch", "dispatch"),
    Column("workers", "workers", "d"),
    Column("workers_bound", "lower bound", "d"),
    Column("accuracy", "accuracy", ".4f", wide=True),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%"),
    Column("violation_rate_half_width", "± (95 %)", ".4%"),
    *OPINIONS,
)
GROWN = (
    Column("growth", "growth", "g"),
    LOAD,
    Column("workers", "workers", "d"),
    Column("cost", "cost", "g"),
    Column("workers_bound", "lower bound", "d"),
    Column("accuracy", "accuracy", ".4f", wide=True),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%", wide=True),
)

# Vertices of a frontier.
CORNERS = (
    LOAD,
    Column("violation_price", "violation price", ".4g"),
    Column("expected_violation_rate", "violations", ".4%"),
    Column("expected_effective_accuracy", "effective accuracy", ".4f"),
    Column("violation_rate", "violations, simulated", ".4%"),
    Column("violation_half_width", "± (95 %)", ".4%"),
    Column("effective_accuracy", "effective accuracy, simulated", ".4f"),
)

# A log beside the best policies and the bound, and the causes of violations.
AUDITED = (
    Column("what", "requests"),
    Column("accuracy", "accuracy", ".4f"),
    Column("violation_rate", "violations", ".3%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("workers", "workers", "d"),
)
CAUSES = (
    Column("cause", "cause of violations"),
    Column("requests", "requests", "d"),
    Column("share", "share of requests", ".3%"),
)

# Scaling policies and rules.
SCALED = (
    Column("scheduler", "scheduler"),
    Column("tuned_word", "tuned"),
    Column("worker_s", "worker-seconds", ".0f"),
    Column("cost", "cost", ".4g"),
    Column("cost_worker_s", "cost in worker-seconds", ".0f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("changes", "changes", "d", wide=True),
    Column("starts", "starts", "d", wide=True),
    Column("meets_word", "meets target"),
    Column("parameter_words", "parameters"),
)

# Families of a placement: as planned, simulated with policies, and on shared GPUs.
FAMILIES = (
    Column("name", "family"),
    Column("demand_qps", "demand (QPS)", ".1f"),
    Column("served_share", "served", ".2%"),
    Column("accuracy", "accuracy", ".4f"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("workers", "workers", "d"),
    Column("worst_latency_ms", "worst latency (ms)", ".1f"),
    Column("slo_ms", "SLO (ms)", "g"),
)
PLACED = (
    Column("family", "family"),
    Column("dispatch", "served by"),
    Column("load_qps", "load (QPS)", ".1f", wide=True),
    Column("slo_ms", "SLO (ms)", "g", wide=True),
    Column("utilisation", "utilisation", ".1%"),
    Column("placement_effective_accuracy", "effective accuracy, by the placement", ".4f"),
    Column("expected_effective_accuracy", "by policies", ".4f"),
    Column("effective_accuracy", "simulated", ".4f"),
    Column("effective_accuracy_half_width", "± (95 %)", ".4f", wide=True),
    Column("upper_bound", "upper bound", ".4f", wide=True),
    Column("violation_rate", "violations", ".3%"),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
)
PLAYED = (
    Column("family", "family"),
    Column("target_rps", "target (rps)", ".1f"),
    Column("achieved_rps", "sent (rps)", ".1f", wide=True),
    Column("goodput_rps", "goodput (rps)", ".1f"),
    Column("in_time", "in time", ".2%"),
    Column("throughput_rps", "throughput (rps)", ".1f", wide=True),
    Column("router_to_node_p95_ms", "router to node p95 (ms)", ".1f", wide=True),
    Column("node_to_worker_p95_ms", "node to worker p95 (ms)", ".1f", wide=True),
    Column("processing_p95_ms", "processing p95 (ms)", ".1f", wide=True),
    Column("response_p95_ms", "p95 response (ms)", ".1f"),
    Column("slo_ms", "SLO (ms)", "g"),
)

# Schedulers of a cluster, and requests of a stream, tenant, family, model or copy, which is
# ``by``.
SCHEDULERS = (
    Column("scenario", "scenario"),
    Column("seed", "first seed", "d"),
    Column("scheduler", "scheduler"),
    Column("in_time", "in time", ".4f"),
    Column("in_time_half_width", "± (95 %)", ".4f"),
    Column("bound", "upper bound", ".4f"),
    Column("share_of_bound", "share of the bound", ".2%", wide=True),
    Column("accuracy", "accuracy", ".4f", wide=True),
    Column("violation_rate", "violations", ".3%"),
    Column("too_early", "too early", "d"),
    Column("response_p50_ms", "p50 response (ms)", ".1f", wide=True),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
    Column("response_longest_ms", "longest response (ms)", ".1f", wide=True),
    Column("loads", "models loaded", "d", wide=True),
    Column("loading_s", "loading time (s)", ".2f", wide=True),
    Column("cold_starts", "cold starts", "d"),
    Column("utilisation", "utilisation", ".1%"),
    Column("placement_gap", "placement gap", ".2%", wide=True),
)
GROUPS = (
    Column("scheduler", "scheduler"),
    Column("name", "{by}"),
    Column("requests", "requests", "d"),
    Column("in_time", "in time", ".4f"),
    Column("late", "late", "d", wide=True),
    Column("dropped", "dropped", "d", wide=True),
    Column("never_answered", "never answered", "d", wide=True),
    Column("waiting_mean_ms", "waiting (ms)", ".2f"),
    Column("loading_mean_ms", "loading (ms)", ".2f"),
    Column("service_mean_ms", "service (ms)", ".2f"),
    Column("machine_mean_ms", "machine (ms)", ".2f", wide=True),
    Column("response_mean_ms", "mean response (ms)", ".2f", wide=True),
    Column("response_p50_ms", "p50 response (ms)", ".1f", wide=True),
    Column("response_p99_ms", "p99 response (ms)", ".1f"),
)


def capacity_columns(*, typed: bool) -> list[Column]:
    """Return the columns for workers of a single type, or of several types with their cost."""
    others = ("workers", "workers_bound") if typed else ("mix", "cost", "cost_bound")
    return [column for column in _CAPACITY if column.key not in others]


def scheduler_columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return the columns for schedulers of a cluster; accuracies of 1 are left out."""
    exact = all(row["accuracy"] in (None, 1.0) for row in rows)  # as where none is stated
    return [column for column in with_values(SCHEDULERS, rows)
            if not (exact and column.key == "accuracy")]
