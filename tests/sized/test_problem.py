"""The problem of requests with a size: its times, classes and refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ramsis.arrivals import SizeDistribution
from ramsis.errors import InfeasibleError, InvalidValueError
from ramsis.profiles import ProfileSet
from ramsis.sized import SizedProblem
from scripts.sized import CELLS
from tests.profiles.samples import model
from tests.profiles.test_sized import sized_set, times


@pytest.mark.parametrize("name", CELLS)
def test_cells_have_the_times_of_their_law(name):
    cell = CELLS[name]
    problem = cell.problem()
    assert problem.max_size == cell.max_size
    assert problem.max_batch == 64
    for count, size in ((1, 3), (1, 100), (7, 64), (64, cell.max_size)):
        x = size if cell.law == "padded" else count * size
        assert problem.batch_ms(count, x)[0] == pytest.approx(
            float(cell.time_ms(np.array(float(count)), np.array(float(size)))), rel=1e-12)


def test_classes_and_weights():
    sizes = SizeDistribution.of_sizes([8, 16, 32])
    problem = SizedProblem.of(sized_set(), sizes, slo_ms=50, edges=(8, 32), weights=(1, 2))
    assert problem.ranges == ((1, 8), (9, 32))
    assert problem.shares.tolist() == pytest.approx([1 / 3, 2 / 3])
    assert problem.class_of(np.array([1, 8, 9, 32])).tolist() == [0, 0, 1, 1]
    assert problem.fingerprint != SizedProblem.of(
        sized_set(), sizes, slo_ms=50, edges=(8, 32)).fingerprint


def problem_of(profile: ProfileSet | None = None, sizes: Any = (8, 32), **changes: Any) -> Any:
    values = {"slo_ms": 50.0, **changes}
    return SizedProblem.of(profile or sized_set(), SizeDistribution.of_sizes(sizes), **values)


@pytest.mark.parametrize(("changes", "message"), [
    ({"sizes": (8, 40)}, r"sizes: a size beyond those of the profile: got 40; allowed: 1 to 32 "
                         r"tokens \(50.00% of the requests are beyond\)"),
    ({"sizes": (2, 3)}, "sizes: all sizes are below those of the profile: got 3; .* 8 to 32"),
    ({"slo_ms": 0}, "slo_ms: not positive"),
    ({"max_batch": 0}, "max_batch: not a number of requests in a batch"),
    ({"statistic": "p99"}, "model small, statistic: no such latency statistic of sizes"),
    ({"edges": (8, 16)}, "edges: not size classes: .* the last 32 or more"),
    ({"weights": (1, 2, 3)}, "weights: not a weight for each size class"),
    ({"edges": (32,), "weights": (-1,)}, r"weights\[0\]: not positive"),
    ({"profile": ProfileSet("plain", (model("small", 0.7, {1: 6.0}),))},
     "profile: the profile has no times by size: got 'plain'; .*--size-points"),
    ({"profile": ProfileSet("mixed", (*sized_set().models, model("large", 0.8, {1: 6.0})))},
     "profile: no times by size, beside models with them: got 'large'"),
])
def test_bad_input_is_refused(changes, message):
    with pytest.raises(InvalidValueError, match=message):
        problem_of(**changes)


def test_different_laws_are_refused():
    small = sized_set().models[0]
    large = replace(small, name="large", sized=times(law="packed"))
    with pytest.raises(InvalidValueError, match="model large, law: models of different laws"):
        problem_of(ProfileSet("laws", (small, large)))


def test_a_deadline_that_no_size_meets_is_refused():
    with pytest.raises(InfeasibleError, match="no request can be answered in time"):
        problem_of(slo_ms=1.0)
