"""Placements: from a problem's document to named, checked workers, in a fresh process each."""

import json
from typing import Any

import pytest

from placement_milp import Limits, place, problem_from_document
from tests.bench.fresh import program_freshly
from tests.bench.placements import PlacementWork, document
from tests.bench.timing import Timing, process


def solved_freshly(benchmark: Any, name: str, rounds: int = 5) -> tuple[PlacementWork, Timing]:
    """Work and median times of ``placements.py NAME``."""
    fresh = program_freshly(benchmark, rounds, PlacementWork, "placements.py", name)
    return fresh.work, fresh.timing


def test_a_hundred_workers(benchmark, ledger):
    work, times = solved_freshly(benchmark, "hundred")
    assert (work.workers, work.variants, work.families) in ((100, 26, 9), (99, 26, 9))
    assert work.status == "optimal"
    assert work.gap <= 1e-6
    ledger.time("placement, 100 workers, proven optimal", times, 1.0)
    _, whole = process("tests/bench/placements.py", "hundred")
    printed, with_cbc = process("tests/bench/placements.py", "hundred", "cbc")
    assert json.loads(printed)["work"]["objective"] == pytest.approx(work.objective, abs=1e-6)
    ledger.ratio(whole, with_cbc, "the whole process, its program given to CBC instead")


def test_a_hundred_workers_that_two_variants_may_share(benchmark, ledger):
    alone = place(problem_from_document(document("hundred")), Limits(gap=1e-3)).objective
    work, times = solved_freshly(benchmark, "shared", rounds=3)
    assert work.status == "optimal"
    assert work.gap <= 1e-2
    assert work.objective >= alone - 1e-2
    ledger.time("... with two variants on a worker, to 1 %", times, 5.0)


def test_ten_thousand_workers(benchmark, ledger):
    _, hundred = solved_freshly(None, "hundred", rounds=3)
    work, times = solved_freshly(benchmark, "ten-thousand")
    assert work.workers in (10_000, 9_900)
    assert work.status == "optimal"
    assert work.gap <= 1e-6
    ledger.time("... 10,000 workers, proven optimal", times, 1.0)
    ledger.ratio(times, hundred, "100 workers of the same types")


def test_a_large_problem(benchmark, ledger):
    work, times = solved_freshly(benchmark, "large", rounds=3)
    assert (work.workers, work.variants, work.families) == (1000, 184, 36)
    assert work.status == "optimal"
    assert work.gap <= 1e-4
    assert 0.8 < work.effective_accuracy < 1.0
    ledger.time("placement, 1000 workers, 10 types, 184 variants, to 1e-4", times, 5.0)
