"""What a file was made for stands in it twice, and must be the same."""

import json
from collections.abc import Callable
from typing import Any

from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.synthesis import samples
from tests.verify.mutations import derived_once, failures

CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a factor": (lambda d: d["headroom"].update(factor=1.075), "settings: headroom"),
    "no headroom": (lambda d: d.pop("headroom"), "settings: headroom"),
    "a budget among the settings": (lambda d: d["inputs"]["options"].update(max_violation=0.1),
                                    "settings have their fingerprint"),
    "no settings": (lambda d: d["inputs"].pop("options"), "settings have their fingerprint"),
}


def test_a_change_of_what_it_was_made_for_is_found(tmp_path):
    document = generate_policy(samples.tiny_profile(), 900.0, SynthesisSettings(
        slo_ms=100.0, workers=4, grid="fixed:12", max_queue=6)).to_document()
    with derived_once() as derived:
        assert derived.anew(failures, document, tmp_path) == []
        for name, (alter, claim) in CHANGES.items():
            changed = json.loads(json.dumps(document))
            alter(changed)
            assert claim in derived.anew(failures, changed, tmp_path), name


def test_a_budget_that_is_left_out_is_found(tmp_path):
    document = generate_policy(samples.tiny_profile(), 1200.0, samples.settings(
        grid="fixed:12", max_queue=6, max_violation=0.03)).to_document()
    assert failures(document, tmp_path) == []
    del document["budget"]
    assert "settings: max violation" in failures(document, tmp_path)
