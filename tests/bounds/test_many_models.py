"""Bounds of profiles with many models: few columns of the program are looked at."""

from typing import Any

import numpy as np
import pytest

from ramsis.bounds import fluid
from ramsis.bounds.fluid import fluid_bound
from ramsis.cluster import SloClass
from ramsis.profiles import LatencyTable


def table(rng: np.random.Generator, models: int, batches: int) -> LatencyTable:
    """Models on a front, slower ones more accurate, that gain by batching to differing degrees."""
    first_ms = np.sort(rng.uniform(1.0, 30.0, models))
    each_ms = first_ms * rng.uniform(0.1, 0.9, models)
    latency_ms = first_ms[:, None] + each_ms[:, None] * np.arange(batches)
    return LatencyTable(tuple(f"m{i}" for i in range(models)),
                        np.sort(rng.uniform(0.4, 0.95, models)), latency_ms,
                        np.zeros(latency_ms.shape, dtype=np.int8), "p95")


@pytest.mark.parametrize("seed", range(12))
def test_few_columns_give_the_bound_of_all(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    types = [table(rng, 20, 12) for _ in range(1 + seed % 2)]
    classes = (SloClass(60.0, 0.7), SloClass(150.0, 0.3)) if seed % 3 else (SloClass(80.0, 1.0),)
    given = {
        "slo_ms": classes, "workers": [int(n) for n in rng.integers(1, 5, len(types))],
        "load_qps": float(rng.uniform(20, 900)),
        "violation_price": float(rng.choice([0.0, 1.0])),
        "gathering": len(classes) == 1,
    }
    whole = fluid_bound(types, **given)
    monkeypatch.setattr(fluid, "_ALL_COLUMNS", 0)
    monkeypatch.setattr(fluid, "_COLUMNS_A_ROUND", 5)
    few = fluid_bound(types, **given)
    assert few.upper_bound == pytest.approx(whole.upper_bound, abs=1e-9)
    assert few.effective_accuracy == pytest.approx(whole.effective_accuracy, abs=1e-8)
    assert few.upper_bound >= few.effective_accuracy - 1e-9


def test_few_columns_of_many_models_are_solved_with(monkeypatch):
    """All 32,000 columns of 1,000 models at once took minutes and 850 MB."""
    sizes: list[int] = []

    def solved(what: str, **program: Any) -> Any:
        sizes.append(len(program["c"]))
        return solve(what, **program)

    solve = fluid.solved
    monkeypatch.setattr(fluid, "solved", solved)
    many = table(np.random.default_rng(5), 300, 32)
    bound = fluid_bound(many, slo_ms=100, workers=2, load_qps=400, gathering=True)
    assert max(sizes) < 1000
    assert 0.0 < bound.effective_accuracy <= bound.upper_bound + 1e-9 <= 1.0
