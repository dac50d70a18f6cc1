"""The rules of the live comparison are those of the simulator; the page shows the kept rows."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from live.sized import CLASSES, MOST_TOKENS, RuleDispatcher, passages, table_of

from ramsis.arrivals import SizeDistribution
from ramsis.profiles import load
from ramsis.runtime.sized import SizedTables
from ramsis.sized import SizedProblem, sized_scheduler
from ramsis.sized.rule import RuleNumbers, RuleSpace
from ramsis.sized.simulate import serve_sized

DOCS = Path(__file__).resolve().parents[2] / "docs"


@cache
def problem() -> SizedProblem:
    sizes = SizeDistribution.of_sizes([8, 12, 30, 90, 256])
    return SizedProblem.of(load("minilm-cpu"), sizes, slo_ms=300.0)


@cache
def tables() -> SizedTables:
    return RuleSpace(problem()).tables(RuleNumbers())


@pytest.mark.parametrize("rule", ["tei:max_batch=8", "tei:max_tokens=600", "infinity",
                                  "infinity:max_batch=4,batches=3"])
def test_a_rule_composes_the_batches_of_the_simulator(rule):
    rng = np.random.default_rng(3)
    arrival_ms = np.cumsum(rng.exponential(25.0, 300))
    size = problem().sizes.sample(300, rng)
    simulated = serve_sized(problem(), sized_scheduler(rule), arrival_ms, size,
                            duration_ms=10_000.0).run
    dispatcher = RuleDispatcher(rule, tables(), lambda number: int(size[number]))
    batches: list[tuple[int, ...]] = []
    start_ms = []

    def started(orders: object, now_ms: float) -> None:
        for start in orders.starts:  # type: ignore[attr-defined]
            batches.append(tuple(sorted(start.requests)))
            start_ms.append(now_ms)

    arrived = 0
    while len(batches) < len(simulated.start_ms):
        ends_ms = simulated.finish_ms[len(batches) - 1] if batches else -1.0
        if arrived < 300 and (not batches or arrival_ms[arrived] <= ends_ms):
            now_ms = float(arrival_ms[arrived])
            started(dispatcher.arrive(now_ms, [arrived], now_ms + 300.0), now_ms)
            arrived += 1
        else:
            before = len(batches)
            started(dispatcher.finished(float(ends_ms), 0), float(ends_ms))
            if len(batches) == before:  # idle until the next request
                now_ms = float(arrival_ms[arrived])
                started(dispatcher.arrive(now_ms, [arrived], now_ms + 300.0), now_ms)
                arrived += 1
    assert start_ms == pytest.approx(simulated.start_ms)
    assert batches == [tuple(np.flatnonzero(simulated.batch_of == i).tolist())
                       for i in range(len(batches))]


def test_a_rule_leaves_out_clients_that_have_left():
    dispatcher = RuleDispatcher("tei:max_batch=2", tables(), lambda request: len(request))
    texts = ["a" * 9, "b" * 8, "c" * 8, "d" * 8]
    dispatcher.arrive(0.0, texts[:1], 300.0)
    dispatcher.arrive(1.0, texts[1:], 301.0)
    dispatcher.leave(2.0, texts[1:2])
    assert [start.requests for start in dispatcher.finished(9.0, 0).starts] == [texts[2:]]


def test_passages_have_the_stated_lengths():
    lengths = [len(text) for text in passages(4000, np.random.default_rng(1))]
    assert np.quantile(lengths, [0.5, 0.9]) == pytest.approx([37.0, 400.0], rel=0.15)


def test_the_table_states_promise_and_lost_requests():
    row = dict.fromkeys(kept().columns, 0.5) | {
        "scheduler": "policy", "requests": 100, "answered": 97, "failed": 1,
        "promised_in_time": 0.97}
    row |= {f"up_to_{i}": MOST_TOKENS for i in range(CLASSES)}
    line = table_of(pd.DataFrame([row, row | {"promised_in_time": None}])).splitlines()[-2]
    assert line.startswith("| policy | 50% | 0.5 | 100 | 0.5000 | 0.9700 | 0.5000 | 3 |")


def kept() -> pd.DataFrame:
    return pd.read_csv(DOCS / "results/live-sizes.csv")


def test_the_page_states_the_shares_of_the_kept_rows():
    page = " ".join((DOCS / "serving/fidelity.md").read_text("utf-8").split())
    policy = kept()[kept()["scheduler"] == "policy"]
    for name in ("in_time", "promised_in_time"):
        *first, last = (f"{100 * share:.1f}" for share in policy[name])
        assert f"{', '.join(first)} and {last} %" in page


def test_the_policy_answers_more_in_time_than_the_rules_and_loses_no_request():
    rows = kept()
    policy = rows[rows["scheduler"] == "policy"].set_index("load_share")
    assert policy.index.tolist() == [0.5, 0.7, 0.85, 0.95]
    assert (rows["failed"] == 0).all()
    assert (policy["in_time"] >= policy["promised_in_time"] - 0.01).all()
    for _, row in rows[rows["scheduler"] != "policy"].iterrows():
        assert row["in_time"] < policy["in_time"].to_dict()[row["load_share"]]
