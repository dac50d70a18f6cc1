"""The JSON schema of what commands print with ``--json``, which stands beside this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ramsis.errors import InputFileError, describe

__all__ = ["check_results", "results_schema"]


@cache
def results_schema() -> dict[str, Any]:
    """The schema: keys of rows, their units and what they are."""
    text = resources.files(__package__).joinpath("results-1.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def check_results(document: Mapping[str, Any], where: str) -> None:
    """Refuse results that break the schema, naming the first field that does.

    Raises
    ------
    InputFileError
        With the field's JSON path and the schema's rule.
    """
    from jsonschema import Draft202012Validator  # here, as it takes long to load

    errors = Draft202012Validator(results_schema()).iter_errors(document)
    first = min(errors, key=lambda error: error.json_path, default=None)
    if first is not None:
        raise InputFileError(describe(
            f"breaks the schema's rule '{first.validator}'", value=first.instance,
            where=f"{where}: {first.json_path.removeprefix('$').removeprefix('.')}",
            allowed=f"{first.validator} {json.dumps(first.validator_value)[:80]}"))
