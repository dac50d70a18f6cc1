"""What a file was made for stands in it twice, and must be the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ramsis.policy import write
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.verify import verify_policy
from tests.synthesis import samples


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return generate_policy(samples.tiny_profile(), 900.0, SynthesisSettings(
        slo_ms=100.0, workers=4, grid="fixed:12", max_queue=6)).to_document()


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a factor": (lambda d: d["headroom"].update(factor=1.075), "settings: headroom"),
    "no headroom": (lambda d: d.pop("headroom"), "settings: headroom"),
    "a budget among the settings": (lambda d: d["inputs"]["options"].update(max_violation=0.1),
                                    "settings have their fingerprint"),
    "no settings": (lambda d: d["inputs"].pop("options"), "settings have their fingerprint"),
}


def test_what_is_not_changed_verifies(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))
    assert all(check.holds for check in verify_policy(path))


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_it_was_made_for_is_found(
    document: dict[str, Any], change: str, tmp_path: Path
) -> None:
    changed = json.loads(json.dumps(document))
    path = tmp_path / "policy.json"
    alter, claim = CHANGES[change]
    alter(changed)
    path.write_text(json.dumps(changed))
    assert claim in [check.claim for check in verify_policy(path) if not check.holds]


def test_a_budget_that_is_left_out_is_found(tmp_path: Path) -> None:
    policy = generate_policy(samples.tiny_profile(), 1200.0, samples.settings(
        grid="fixed:12", max_queue=6, max_violation=0.03))
    path = tmp_path / "policy.json"
    write(policy, path)
    assert all(check.holds for check in verify_policy(path))
    document = policy.to_document()
    del document["budget"]
    path.write_text(json.dumps(document))
    assert "settings: max violation" in [
        check.claim for check in verify_policy(path) if not check.holds]
