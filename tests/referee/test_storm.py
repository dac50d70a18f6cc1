"""The solvers beside the model checker Storm: published values, and problems drawn at random."""

import csv
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ramsis.mdp.result import Solution, Status
from ramsis.mdp.solvers import SOLVERS, solve_average, solve_discounted

pytest.importorskip("stormpy")
from tests.referee.storm_models import Pair, ours, read_jani, storm_values

pytestmark = pytest.mark.slow

_NOT_BUILT = {"polling-system.jani"}  # a feature of JANI that Storm does not read
_ROWS = 75


def _rows(reference: Path) -> list[dict[str, str]]:
    with (reference / "referees" / "values.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _gain(solution: Solution, state: int) -> float:
    """The gain from a state, after checking that the certificate is right about it."""
    assert solution.certificate.status is Status.OPTIMAL
    return float(solution.state_gain[state])


def _check(solution: Solution, exact: list[float], rel: float, absolute: float) -> None:
    """Gains, bounds and status are right; millions of steps may leave the bounds apart."""
    assert solution.state_lower is not None
    assert solution.state_upper is not None
    rounding = 1e-12 * np.abs(exact)
    assert (solution.state_lower - rounding <= exact).all()
    assert (exact <= solution.state_upper + rounding).all()
    apart = float((solution.state_upper - solution.state_lower).max())
    near = absolute if apart < 1e-9 else apart
    assert solution.state_gain.tolist() == pytest.approx(exact, rel=rel, abs=near)
    assert solution.certificate.status is (Status.OPTIMAL if apart < 1e-9 else Status.PRECISION)
    assert apart < 1e-6


@pytest.mark.parametrize("number", range(_ROWS))
def test_a_published_value_is_found_to_nine_digits(number, reference_dir):
    rows = _rows(reference_dir)
    assert len(rows) == _ROWS
    row = rows[number]
    if row["file"] in _NOT_BUILT:
        pytest.skip("Storm does not build this model")
    exact = Fraction(int(row["numerator"]), int(row["denominator"]))
    model = read_jani(reference_dir / "referees" / "models" / row["file"], row["parameters"],
                      row["property"])
    if row["type"] == "prob-reach":
        found = solve_average(model.reaching())
        sign = 1.0 if model.largest else -1.0
        assert sign * _gain(found, model.initial) == pytest.approx(float(exact), rel=1e-9, abs=0)
        return
    found = solve_average(model.total())
    sign = 1.0 if model.largest else -1.0
    assert sign * _gain(found, model.initial) == pytest.approx(float(exact), rel=1e-9, abs=0)
    if row["type"] == "exp-steps":
        steps = 1.0 / abs(_gain(solve_average(model.cycle()), model.initial)) - 1.0
        assert steps == pytest.approx(float(exact), rel=1e-9, abs=0)


def _draw(seed: int) -> list[Pair]:
    """A problem of one of several kinds; the last state is a goal that absorbs."""
    rng = random.Random(seed)
    size = rng.randint(2, 12)
    kind = rng.choice(["any", "deterministic", "ring", "forward", "islands", "tiny"])
    pairs = [Pair(size - 1, {size - 1: Fraction(1)}, rng.randint(-3, 3))]
    for state in range(size - 1):
        for _ in range(rng.randint(1, 3)):
            nexts = rng.sample(range(size), rng.randint(1, min(3, size)))
            if kind == "deterministic":
                nexts = nexts[:1]
            elif kind == "ring":
                nexts = [(state + rng.choice((1, 1, 1, 2))) % (size - 1 or 1)]
            elif kind == "forward":
                nexts = sorted({min(size - 1, max(to, state + 1)) for to in nexts})
            elif kind == "islands":
                nexts = sorted({to - to % 3 + state % 3 if to - to % 3 + state % 3 < size else to
                                for to in nexts})
            weights = [Fraction(rng.randint(1, 9)) for _ in nexts]
            if kind == "tiny":
                weights[0] = Fraction(1, 10 ** rng.randint(3, 9))
            total = sum(weights)
            chances = {to: each / total for to, each in zip(nexts, weights, strict=True)}
            pairs.append(Pair(state, chances, rng.randint(-9, 9)))
    return sorted(pairs, key=lambda pair: pair.state)


@pytest.mark.parametrize("seed", range(60))
def test_drawn_averages_are_those_of_storm(seed, tmp_path):
    pairs = _draw(seed)
    exact = storm_values(pairs, -1, 'R{"r"}max=? [LRA]', tmp_path)
    mdp = ours(pairs)
    _check(solve_average(mdp), exact, 1e-9, 1e-12)
    for solver in SOLVERS:
        found = solve_average(mdp, solver)
        assert found.state_gain is not None
        if found.certificate.converged:
            assert found.state_gain.tolist() == pytest.approx(exact, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("sign", [1, -1])
def test_drawn_chances_are_those_of_storm(seed, sign, tmp_path):
    pairs = _draw(seed)
    goal = pairs[-1].state
    best = "max" if sign == 1 else "min"
    exact = storm_values(pairs, goal, f'P{best}=? [F "goal"]', tmp_path)
    found = solve_average(ours([
        Pair(pair.state, pair.chances, sign * (pair.state == goal)) for pair in pairs]))
    _check(found, [sign * each for each in exact], 1e-9, 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_discounted_values_are_those_of_storm(seed, tmp_path):
    pairs = _draw(seed)
    near = storm_values(pairs, -1, 'R{"r"}max=? [Cdiscount=9/10]', tmp_path)
    found = solve_discounted(ours(pairs), 0.9)
    assert found.certificate.status is Status.OPTIMAL
    np.testing.assert_allclose(found.value, near, rtol=0, atol=2e-4)
