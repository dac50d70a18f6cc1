"""Reading the parts of a policy document: models, SLO classes, arrivals, budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ramsis.arrays import FloatArray
from ramsis.cluster.cluster import SloClass, merged_classes
from ramsis.errors import ABOVE_ZERO, FRACTION, POSITIVE, InvalidValueError
from ramsis.fields import Fields
from ramsis.policy.cascade import Cascade
from ramsis.policy.records import PolicyModel
from ramsis.records import names
from ramsis.runtime.cascade import check_in_turn
from ramsis.runtime.routing import DISPATCHES
from ramsis.runtime.table import DecisionTable


def models_in(
    fields: Fields, table: DecisionTable, *, drawn: bool
) -> tuple[PolicyModel, ...]:
    """Read the models, with service times for every action.

    Where each worker has its own queue there is one for each batch up to one more than the
    longest queue; where times are drawn, the first model has quantiles for each of these.
    """
    own_queues = DISPATCHES[table.dispatch].own_queues
    batches = table.queued[-1] + 1 if own_queues else None
    models: list[PolicyModel] = []
    size = None
    for i, child in enumerate(fields.children("models")):
        model = PolicyModel.from_fields(child, batches, drawn=drawn, size=size)
        if model.quantiles_ms is not None:
            rows, most = len(model.quantiles_ms), len(model.latency_ms)
            size, least = len(model.quantiles_ms[0]), 1 if i and own_queues else most
            if not least <= rows <= most or (own_queues and size < 2):
                raise child.refusal("quantiles_ms", "not two or more quantiles for each batch",
                                    value=f"{rows} batches, {size} quantiles",
                                    allowed=f"{least} to {most} batches")
        models.append(model)
    for a, (m, batch) in enumerate(table.actions):
        if batch > len(models[m].latency_ms):
            raise fields.refusal(f"table.actions[{a}]", "no service time for this batch",
                                 value=[m, batch],
                                 allowed=f"batches up to {len(models[m].latency_ms)}")
    return tuple(models)


def classes_in(fields: Fields, table: DecisionTable) -> tuple[SloClass, ...]:
    """Read the SLO classes of a document; return none where there is one SLO."""
    if "slo_classes" not in fields:
        return ()
    if DISPATCHES[table.dispatch].own_queues:
        raise fields.refusal("slo_classes", "queues of single workers have one SLO",
                             value=table.dispatch, allowed="dispatch central-queue")
    numbers, slo_ms = [], table.slo_ms
    for entry in fields.children("slo_classes"):
        entry.only(names(SloClass))
        numbers.append((entry.number("slo_ms", POSITIVE), entry.number("share", FRACTION)))
    try:
        listed = [SloClass(*pair) for pair in numbers]
        classes = merged_classes(listed)
    except InvalidValueError as error:
        raise fields.refusal("slo_classes", str(error)) from None
    if classes != tuple(listed) or len(listed) < 2 or listed[-1].slo_ms != slo_ms:
        raise fields.refusal("slo_classes", "not two or more rising SLOs up to slo_ms",
                             value=[slo for slo, _ in numbers], allowed=f"…, {slo_ms:g}")
    return classes


def arrivals_in(fields: Fields) -> dict[str, Any]:
    """Read the arrival process of a policy file, with its parameters."""
    arrivals = fields.child("arrivals")
    values = {key: arrivals.value(key) for key in arrivals}
    for key, value in values.items():
        if value is None or isinstance(value, Mapping):
            raise arrivals.refusal(key, "not a parameter", value=value,
                                   allowed="a number, text, truth value, or list")
    return values


def levels_in(fields: Fields, models: Sequence[PolicyModel]) -> FloatArray | None:
    """Read the levels of the models' quantiles; None where they are midpoints or absent."""
    if "quantile_levels" not in fields or fields.value("quantile_levels") is None:
        return None
    if models[0].quantiles_ms is None:
        raise fields.refusal("quantile_levels", "levels without quantiles",
                             value=fields.value("service"), allowed="service distribution")
    levels = fields.numbers("quantile_levels", ABOVE_ZERO, len(models[0].quantiles_ms[0]))
    fields.check_rising("quantile_levels", levels)
    return np.array(levels)


def cascade_in(fields: Fields, models: Sequence[PolicyModel]) -> Cascade | None:
    """Read the second opinions of a policy document; None where it has none."""
    item = fields.child_or_none("cascade")
    if item is None:
        return None
    check_in_turn(fields)
    longest = max(len(model.service_ms) for model in models)
    return Cascade.from_fields(item, len(models), longest)
