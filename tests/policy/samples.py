"""Policies to test with."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ramsis import policy
from ramsis.policy import PolicyModel, WorkerPolicy
from tests.reference.lookup import POLICY


def document() -> dict[str, Any]:
    """A small valid policy document, the caller's own to change."""
    return copy.deepcopy(POLICY)


def small_policy(**changes: Any) -> WorkerPolicy:
    """The same as a policy, with some attributes changed."""
    return dataclasses.replace(WorkerPolicy.from_document(document(), "sample"), **changes)


def large_policy() -> WorkerPolicy:
    """Nine models, D=100, queues up to 32, numbers with all their digits."""
    rng = np.random.default_rng(1)
    models = tuple(
        PolicyModel(f"efficientnet_v2_long_name_{i}", 0.6 + rng.random() / 40 + i / 40,
                    tuple(np.cumsum(rng.random(33) + 1e-3).tolist()), "m" * 9 + "p" + "e" * 23)
        for i in range(9)
    )
    models = tuple(sorted(models, key=lambda model: model.latency_ms[0]))
    expected = small_policy().expectations
    share = {model.name: 1 / 9 for model in models}
    return small_policy(
        models=models, max_queue=32, slo_ms=150.0, batching="maximal",
        slack_ms=150.0 * np.arange(101) / 100,
        model_table=rng.integers(0, 9, (32, 101)),
        batch_table=np.repeat(np.arange(1, 33)[:, None], 101, axis=1),
        overflow_batch=33, expectations=dataclasses.replace(expected, model_share=share),
    )


@st.composite
def policies(draw: st.DrawFn) -> WorkerPolicy:
    """Any valid policy of up to five models, six queue lengths and eight slack bins."""
    fraction, positive = st.floats(0, 1), st.floats(1e-9, 1e9)
    max_queue, bins = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    names = draw(st.lists(st.text(min_size=1, max_size=8).filter(_is_utf8), min_size=1,
                          max_size=5, unique=True))
    models = tuple(
        PolicyModel(name, draw(fraction),
                    tuple(draw(st.lists(positive, min_size=max_queue + 1,
                                        max_size=max_queue + 1))),
                    draw(st.text("mpie", min_size=max_queue + 1, max_size=max_queue + 1)))
        for name in names
    )
    slack = draw(st.lists(positive, min_size=bins - 1, max_size=bins - 1, unique=True))
    slack_ms = np.array([0.0, *sorted(slack)])
    batching = draw(st.sampled_from(policy.BATCHINGS))
    rows = np.arange(1, max_queue + 1)[:, None] * np.ones(bins, dtype=int)
    cells = st.lists(st.integers(0, 1000), min_size=rows.size, max_size=rows.size)
    shape = rows.shape
    batch = np.array(draw(cells)).reshape(shape) % rows + 1 if batching == "variable" else rows
    late = draw(st.sampled_from(policy.LATE_RULES))
    if late == "drop":
        batch = np.where(np.array(draw(cells)).reshape(shape) % 3 == 0, 0, batch)
    sample = small_policy()
    expected = dataclasses.replace(
        sample.expectations, accuracy=draw(st.none() | fraction), violation_rate=draw(fraction),
        model_share={name: draw(fraction) for name in names},
        overloaded=draw(st.booleans()), upper_bound=draw(st.none() | fraction))
    return dataclasses.replace(
        sample, models=models, max_queue=max_queue, slack_ms=slack_ms, batching=batching,
        slo_ms=float(slack_ms[-1] + draw(positive)), load_qps=draw(positive),
        workers=draw(st.integers(1, 10**6)), late=late, violation_price=draw(fraction),
        model_table=np.array(draw(cells)).reshape(shape) % len(names), batch_table=batch,
        overflow_model=draw(st.integers(0, len(names) - 1)),
        overflow_batch=draw(st.integers(1, max_queue + 1)), expectations=expected)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
