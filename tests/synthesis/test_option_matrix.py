"""The table of options: its page, what it refuses, and that the models keep to it."""

import re
from typing import Any

import pytest

from ramsis.cluster import SloClass
from ramsis.errors import InvalidValueError
from ramsis.policy import DISPATCHES
from ramsis.settings import settings_of
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.recipes import RECIPES
from ramsis.synthesis.settings import LIMITS, PAPER, as_in_the_paper, defaults_of
from ramsis.worker.problem import Objective
from scripts.options_page import condition, limits_table, settings_table

BAD: dict[str, Any] = {
    "service": "distribution", "objective": "per-decision",
    "grid": "fixed:1", "late": "serve", "batching": "maximal",
    "solver": "value-iteration",
    "slo_classes": (SloClass(60.0, 0.5), SloClass(100.0, 0.5)),
    "cascades": True,
}


def test_the_tables_of_the_page_have_every_setting_and_limit():
    rows = settings_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(settings_of(SynthesisSettings))
    limits = limits_table()
    assert [limit for limit in LIMITS if limit.why not in limits] == []


def test_every_dispatch_rule_has_a_recipe():
    assert list(RECIPES) == list(DISPATCHES)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{condition(limit)}: {limit.option}")
def test_a_limit_names_option_value_allowed_and_reason(limit):
    bad = BAD[limit.option]
    if "service" in limit.given:
        bad = "model"
    given = {"dispatch": "central-queue", "cascades": True} if "cascades" in limit.given else (
        limit.given)
    with pytest.raises(InvalidValueError) as refused:
        SynthesisSettings(**{"slo_ms": 100.0, "workers": 2, **given, limit.option: bad})
    message = str(refused.value)
    assert message.startswith(f"{limit.option}: ")
    assert re.search(r" with (dispatch|batching|objective|cascades) ", message)
    assert limit.why in message
    assert message.endswith(f"; allowed: {limit.rule.allowed}")


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_what_is_not_given_is_the_default_of_dispatch_rule_and_objective(dispatch, objective):
    if (dispatch, objective) == ("central-queue", "per-decision"):
        pytest.skip("refused")
    chosen = SynthesisSettings(slo_ms=100.0, workers=2, dispatch=dispatch, objective=objective)
    defaults = {**defaults_of(dispatch, objective), "slo_ms": 100.0, "workers": 2,
                "dispatch": dispatch, "objective": objective}
    assert SynthesisSettings(**defaults) == chosen
    assert {name: getattr(chosen, name) for name in defaults} == defaults


def test_a_setting_is_read_checked_and_documented_by_its_declaration():
    declared = settings_of(SynthesisSettings)["violation_price"]
    assert declared.read("0.5", "round-robin: violation_price") == 0.5
    assert declared.default_words == "1; 0 with per-decision"
    for text, message in (
        ("x", "round-robin: violation_price: not a value of the parameter: got 'x'; allowed: a "
              "number from 0 to 1000000"),
        ("nan", "round-robin: violation_price: not a price: got nan; allowed: a number from 0 to "
                "1000000"),
    ):
        with pytest.raises(InvalidValueError) as refused:
            declared.read(text, "round-robin: violation_price")
        assert str(refused.value) == message
    documentation = SynthesisSettings.__doc__ or ""
    assert declared.help in documentation
    assert "violation_price : float" in documentation


def test_the_paper_serves_what_is_late_and_has_no_price():
    per_decision = SynthesisSettings(slo_ms=100.0, workers=2, objective="per-decision",
                                     service="p95")
    assert per_decision == SynthesisSettings(slo_ms=100.0, workers=2, **PAPER)
    assert (per_decision.late, per_decision.violation_price) == ("serve", 0.0)
    assert as_in_the_paper({"late": None, "max_queue": 8}) == {**PAPER, "max_queue": 8}
    for grid in ("model", "fixed:10"):
        assert as_in_the_paper({"grid": grid}) == {**PAPER, "grid": grid}
    with pytest.raises(InvalidValueError, match=r"^violation_price: not what the paper does"):
        as_in_the_paper({"violation_price": 1.0})
