"""Schemes in the files of a sweep."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ramsis.files import canonical_json
from ramsis.sim import SchemeSpec
from ramsis.synthesis import SynthesisSettings

__all__ = ["scheme_document", "settings_document"]


def settings_document(settings: SynthesisSettings) -> dict[str, Any]:
    """All that a policy depends on but its load and the models, the same for 100 and 100.0 ms.

    Plain JSON values, as a file gives them back.
    """
    known: dict[str, Any] = json.loads(canonical_json({**asdict(settings), **settings.as_dict()}))
    return known


def scheme_document(spec: SchemeSpec) -> dict[str, Any]:
    """Name and parameters of a scheme, without where it keeps its files."""
    parameters = asdict(spec)  # type: ignore[call-overload]
    parameters.pop("store", None)
    return {"name": spec.name, **parameters}
