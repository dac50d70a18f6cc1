"""The JSON schemas of the policy file and the manifest, which stand beside this module."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ramsis.errors import InputFileError, describe

__all__ = ["check_schema", "schema"]


@cache
def schema(name: str) -> dict[str, Any]:
    """The JSON schema ``policy-1`` or ``manifest-1``."""
    text = resources.files(__package__).joinpath(f"{name}.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def check_schema(document: Mapping[str, Any], name: str, where: str) -> None:
    """Refuse a document that breaks a schema, naming the first field that does.

    Raises
    ------
    InputFileError
        With the field's JSON path and the schema's rule.
    """
    from jsonschema import Draft202012Validator

    errors = Draft202012Validator(schema(name)).iter_errors(document)
    first = min(errors, key=lambda error: error.json_path, default=None)
    if first is None:
        return
    path = first.json_path.removeprefix("$").removeprefix(".")
    raise InputFileError(
        describe(f"breaks the schema's rule '{first.validator}'", value=first.instance,
                 where=f"{where}: {path}" if path else where,
                 allowed=f"{first.validator} {json.dumps(first.validator_value)[:80]}")
    )
