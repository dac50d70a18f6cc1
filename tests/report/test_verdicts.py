"""What is said of rows of simulations: who is best where, and what misses a target."""

from typing import Any

import pytest

from ramsis.report.verdicts import simulation_verdict, sweep_verdict, target_words

AXES = {"load_qps": "load (queries/s)", "workers": "workers"}


def row(name: str, load_qps: float | None, accuracy: float, late: float,
        **more: Any) -> dict[str, Any]:
    return {"label": name, "scheduler": name, "load_qps": load_qps, "violation_rate": late,
            "effective_accuracy": accuracy, "upper_bound": 0.95, **more}


def asked(most: float, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "max_violation": most, "meets_target": one["violation_rate"] <= most}
            for one in rows]


def test_a_row_that_meets_the_target_comes_before_a_more_accurate_one():
    rows = [row("fast", 100, 0.90, 0.0001), row("keen", 100, 0.94, 0.02),
            row("slow", 100, 0.85, 0.0)]
    first, *others = simulation_verdict(asked(0.001, *rows))
    assert first == ("fast at 100 queries/s meets the target (at most 0.1 % violations): 0.9000 "
                     "effective accuracy, 0.0100% violations; no scheduler "
                     "with one model per request passes 0.9500")
    assert others == [
        "Next best that meets it, with the fewest violations: slow (0.8500 effective accuracy, "
        "0.0000% violations)",
        "Misses the target: keen at 100 queries/s (2.0000% violations)"]
    assert simulation_verdict(rows)[0].startswith("keen at 100 queries/s has the highest")


def test_where_no_row_meets_the_target_it_says_so_and_who_is_nearest():
    (line,) = simulation_verdict(asked(1e-6, row("a", 100, 0.9, 0.01), row("b", 100, 0.8, 0.002)))
    assert line.startswith("No row meets the target (at most 0.0001 % violations): b at 100")


def test_it_is_told_up_to_which_load_a_target_is_met():
    rows = asked(0.01, row("a", 100, 0.9, 0.001), row("a", 200, 0.8, 0.05),
                 row("b", 100, 0.8, 0.0), row("b", 200, 0.7, 0.06))
    found = simulation_verdict(rows)
    assert found[0].startswith("a at 100 queries/s meets the target")
    assert "Above 100 queries/s no row meets the target" in found


def test_overload_and_broken_promises_are_named_and_do_not_win():
    rows = [row("a", None, 0.9, 0.11), row("b", None, 0.8, 0.01, expected_violation_rate=0.001,
                                            violation_rate_half_width=0.002)]
    found = simulation_verdict(rows)
    assert found[0].startswith("b has the highest effective accuracy: 0.8000")
    assert "OVERLOAD (over 10% late or dropped): a (11.0000% violations)" in found
    assert "Promise not kept: b, 0.1000% promised (1.0000% violations)" in found
    within = [{**rows[1], "violation_rate": 0.0029}]  # its error reaches the promise
    assert len(simulation_verdict(within)) == 1
    rough = [{**rows[1], "expected_violation_rate_half_width": 0.0088}]  # sqrt(.002² + .0088²)
    assert len(simulation_verdict(rough)) == 1
    assert len(simulation_verdict([{**rough[0], "violation_rate": 0.0101}])) == 2
    assert simulation_verdict(rows[:1])[0].startswith("Every row is OVERLOAD: a has the fewest")


def test_a_sweep_says_who_is_best_where_and_by_how_much():
    rows = [row(name, load, accuracy, late, workers=workers)
            for name, load, workers, accuracy, late in (
                ("fast", 100, 2, 0.90, 0.001), ("keen", 100, 2, 0.88, 0.01),
                ("fast", 200, 2, 0.91, 0.5), ("keen", 200, 2, 0.60, 0.02),
                ("fast", 100, 3, 0.90, 0.001), ("keen", 100, 3, 0.93, 0.01),
                ("fast", 200, 3, 0.90, 0.2), ("keen", 200, 3, 0.91, 0.3))]
    assert sweep_verdict(rows, AXES) == [
        "keen is best in 3 of 4 settings: 0.6000 to 0.9300 effective accuracy, 0.0100 to 0.0300 "
        "more than the next, 2.11% to 36.84% below the bound",
        "fast is best in 1 of 4 settings (load 100; workers 2): 0.9000 effective accuracy, 0.0200 "
        "more than the next, 5.26% below the bound",
        "In 1 of 4 settings every row is OVERLOAD",
        "OVERLOAD (over 10% late or dropped) in 3 of 8 rows: fast, load 200, workers 2 (50.0000% "
        "violations); fast, load 200, workers 3 (20.0000% violations); keen, load 200, workers 3 "
        "(30.0000% violations)"]


def test_what_policies_pay_for_is_said_where_another_scheduler_is_best():
    rows = [row(name, 100, accuracy, 0.0) for name, accuracy in (
        ("greedy", 0.9), ("central-queue:grid=model", 0.899))]
    assert any("headroom and a price of violations" in line for line in sweep_verdict(rows, {}))
    ahead = [rows[1], {**rows[0], "effective_accuracy": 0.5}]
    assert not any("headroom" in line for line in sweep_verdict(ahead, {}))


def test_a_lead_within_the_errors_is_called_so():
    rows = [row(name, 100, accuracy, 0.0, effective_accuracy_half_width=0.003)
            for name, accuracy in (("a", 0.9), ("b", 0.899))]
    (line,) = sweep_verdict(rows, {})
    assert "a is best in the only setting: 0.9000" in line
    assert "(within the errors in 1)" in line
    assert sweep_verdict([], AXES) == []


@pytest.mark.parametrize(("terms", "words"), [
    ({}, ""), ({"max_violation": 0.02}, "at most 2 % violations"),
    ({"min_accuracy": 0.7, "min_effective_accuracy": 0.6},
     "at least 0.7 accuracy, at least 0.6 effective accuracy")])
def test_targets_in_words(terms, words):
    assert target_words(terms) == words


def test_simulate_says_which_rows_meet_a_target(run):
    given = ("simulate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 4, "--load",
             9000, "--duration-s", 2, "--scheduler", "greedy", "--scheduler", "jellyfish-plus",
             "--max-violation", 0.001)
    rows = run(*given, "--json").rows
    assert [one["meets_target"] for one in rows] == [
        one["violation_rate"] <= 0.001 for one in rows] == [False, True]
    assert {one["max_violation"] for one in rows} == {0.001}
    below = run(*given).out.replace("\n  ", " ").splitlines()
    assert below[-2:] == simulation_verdict(rows)
    strict = run(*given, "--min-effective-accuracy", 0.999, "--json").rows
    assert not any(one["meets_target"] for one in strict)


def test_without_requests_nothing_is_shown_of_a_target(run):
    given = ("simulate", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 4, "--load",
             0.001, "--duration-s", 1, "--scheduler", "greedy", "--max-violation", 0.001)
    (found,) = run(*given, "--json").rows
    assert found["queries"] == 0
    assert found["meets_target"] is None
    (line,) = simulation_verdict([found])
    assert line.startswith("No requests arrived, so nothing is shown of the target: greedy at")
    assert run(*given).out.replace("\n  ", " ").splitlines()[-1] == line
    beside = simulation_verdict([found, *asked(0.001, row("a", 100, 0.9, 0.0))])
    assert beside[0].startswith("a at 100 queries/s meets the target")
    assert beside[1:] == [line]
