"""The table of options: its page, what it refuses, and that the models keep to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ramsis.cluster import SloClass
from ramsis.errors import InvalidValueError
from ramsis.policy import DISPATCHES
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.options import DEFAULTS, LIMITS, PAPER, VALUES, Limit, as_in_the_paper
from ramsis.synthesis.recipes import RECIPES
from tests.synthesis.samples import tiny_profile

PAGE = Path(__file__).resolve().parents[2] / "docs/options.md"

BAD: dict[str, Any] = {
    "service": "distribution", "objective": "per-decision",
    "grid": "fixed:1", "late": "serve", "batching": "maximal",
    "solver": "value-iteration", "prefer": "early",
    "slo_classes": (SloClass(60.0, 0.5), SloClass(100.0, 0.5)),
}


def matrix() -> str:
    """The table of the page: a row for each option, a column for each dispatch rule."""
    def cell(dispatch: str, option: str) -> str:
        limits = [one for one in LIMITS
                  if one.option == option and one.given == {"dispatch": dispatch}]
        return limits[0].rule.allowed if limits else "all"

    rows = [f"| option | values | {' | '.join(f'`{name}`' for name in DISPATCHES)} |",
            "|---" * (2 + len(DISPATCHES)) + "|"]
    free = {"arrivals": "every process", "grid": "fixed:D, or model",
            "slo_classes": "one SLO, or several"}
    for option in DEFAULTS["round-robin"]:
        values = free[option] if option in free else VALUES[option].allowed
        rows.append(f"| `{option}` | {values} | "
                    f"{' | '.join(cell(name, option) for name in DISPATCHES)} |")
    return "\n".join(rows)


def defaults() -> str:
    """The values of options that are not given."""
    def text(value: object) -> str:
        return {None: "–", (): "one SLO"}.get(value, f"{value}")  # type: ignore[call-overload]

    rows = [f"| default of | {' | '.join(f'`{name}`' for name in DISPATCHES)} |",
            "|---" * (1 + len(DISPATCHES)) + "|"]
    rows += [f"| `{option}` | {' | '.join(text(DEFAULTS[name][option]) for name in DISPATCHES)} |"
             for option in DEFAULTS["round-robin"]]
    return "\n".join(rows)


def reasons() -> str:
    """Every limit with its reason."""
    rows = ["| where | option | allowed | because |", "|---|---|---|---|"]
    rows += [f"| {words(one)} | `{one.option}` | {one.rule.allowed} | {one.why} |"
             for one in LIMITS]
    return "\n".join(rows)


def words(limit: Limit) -> str:
    """The condition of a limit."""
    return ", ".join(f"`{name}` {word}" for name, word in limit.given.items())


@pytest.mark.parametrize("table", [matrix, defaults, reasons])
def test_the_page_has_the_table_of_the_program(table: Any) -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_every_dispatch_rule_has_a_recipe_and_defaults() -> None:
    assert list(RECIPES) == list(DEFAULTS) == list(DISPATCHES)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda one: f"{words(one)}: {one.option}")
def test_a_limit_names_option_value_allowed_and_reason(limit: Limit) -> None:
    bad = BAD[limit.option]
    if "service" in limit.given:
        bad = "model"
    with pytest.raises(InvalidValueError) as refused:
        SynthesisSettings(**{"slo_ms": 100.0, "workers": 2, **limit.given, limit.option: bad})
    message = str(refused.value)
    assert message.startswith(f"{limit.option}: ")
    assert re.search(r" with (dispatch|batching|objective) ", message)
    assert limit.why in message
    assert message.endswith(f"; allowed: {limit.rule.allowed}")


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_what_is_not_given_is_the_default_of_the_dispatch_rule(dispatch: str) -> None:
    chosen = SynthesisSettings(slo_ms=100.0, workers=2, dispatch=dispatch)
    given = SynthesisSettings(slo_ms=100.0, workers=2, dispatch=dispatch, **DEFAULTS[dispatch])
    assert chosen == given
    assert {name: getattr(chosen, name) for name in DEFAULTS[dispatch]} == DEFAULTS[dispatch]


def test_the_paper_serves_what_is_late_and_has_no_price() -> None:
    per_decision = SynthesisSettings(slo_ms=100.0, workers=2, objective="per-decision",
                                     service="p95")
    assert per_decision == SynthesisSettings(slo_ms=100.0, workers=2, **PAPER)
    assert (per_decision.late, per_decision.violation_price) == ("serve", 0.0)
    assert as_in_the_paper({"late": None, "max_queue": 8}) == {**PAPER, "max_queue": 8}
    for grid in ("model", "fixed:10"):
        assert as_in_the_paper({"grid": grid}) == {**PAPER, "grid": grid}
    with pytest.raises(InvalidValueError, match=r"^violation_price: not what the paper does"):
        as_in_the_paper({"violation_price": 1.0})


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_a_policy_says_what_it_was_made_for(dispatch: str) -> None:
    chosen = SynthesisSettings(slo_ms=100.0, workers=2, dispatch=dispatch, max_queue=4,
                               grid="fixed:10")
    policy = generate_policy(tiny_profile(), 200.0, chosen)
    assert policy.dispatch == dispatch
    for name in ("late", "batching", "objective", "violation_price"):
        assert getattr(policy, name) == getattr(chosen, name)
