"""Policies to test with."""

import copy
import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ramsis import policy
from ramsis.policy import Policy, PolicyModel, encoded
from tests.reference.lookup import CENTRAL, POLICY


def document() -> dict[str, Any]:
    """A small valid policy document, the caller's own to change."""
    return copy.deepcopy(POLICY)


def small_policy(**changes: Any) -> Policy:
    """The same as a policy, with some attributes changed."""
    return dataclasses.replace(Policy.from_document(document(), "sample"), **changes)


def central_policy(**changes: Any) -> Policy:
    """A small policy of a central queue, with some attributes changed."""
    sample = Policy.from_document(copy.deepcopy(CENTRAL), "sample")
    return dataclasses.replace(sample, **changes)


def with_table(policy: Policy, model: Any, batch: Any, longer: tuple[int, int]) -> Policy:
    """A policy with another table of models and batches, for queues of one, two and so on."""
    actions, codes, longer_queue = encoded(model, batch, longer)
    return dataclasses.replace(policy, actions=actions, codes=codes, longer_queue=longer_queue,
                               queue_levels=np.arange(codes.shape[1] + 1))


def tables(policy: Policy) -> tuple[Any, Any]:
    """Model and batch of a table for one idle worker, shape (N, J); a batch of 0 drops."""
    model, batch = policy.model_and_batch()
    return model[0], batch[0]


def longer_queue(policy: Policy) -> tuple[int, int]:
    """Model and batch for a queue longer than the table's; (0, 0) where none is named."""
    code = policy.longer_queue
    model, batch = policy.actions[code].tolist() if code >= 0 else (0, 0)
    return model, batch


def put_model(document: dict[str, Any], queued: int, slack_bin: int, model: int) -> None:
    """Another model at one place of a document's table, for the same batch."""
    found = Policy.from_document(document, "sample")
    models, batches = (one.copy() for one in tables(found))
    models[queued - 1, slack_bin] = model
    document.update(with_table(found, models, batches, longer_queue(found)).to_document())


def put_longer_queue(document: dict[str, Any], model: int, batch: int) -> None:
    """Another answer to a queue longer than the table's."""
    found = Policy.from_document(document, "sample")
    document.update(with_table(found, *tables(found), (model, batch)).to_document())


def large_policy() -> Policy:
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
    sample = small_policy(
        models=models, slo_ms=150.0, batching="maximal", slack_ms=150.0 * np.arange(101) / 100,
        expectations=dataclasses.replace(expected, model_share=share))
    return with_table(sample, rng.integers(0, 9, (32, 101)),
                      np.repeat(np.arange(1, 33)[:, None], 101, axis=1), (0, 33))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Any valid policy of up to five models, six queue lengths and eight slack bins."""
    fraction, positive = st.floats(0, 1), st.floats(1e-9, 1e9)
    max_queue, bins = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    names = draw(st.lists(st.text(min_size=1, max_size=8).filter(str.isprintable), min_size=1,
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
    sample = dataclasses.replace(
        sample, models=models, slack_ms=slack_ms, batching=batching,
        slo_ms=float(slack_ms[-1] + draw(positive)), load_qps=draw(positive),
        workers=draw(st.integers(1, 10**6)), late=late, violation_price=draw(fraction),
        expectations=expected)
    longer = draw(st.integers(0, len(names) - 1)), draw(st.integers(1, max_queue + 1))
    return with_table(sample, np.array(draw(cells)).reshape(shape) % len(names), batch, longer)
