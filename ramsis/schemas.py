"""JSON schemas of the project's files; each schema is beside the module that reads the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ramsis.errors import InputFileError


@cache
def read_schema(package: str, name: str) -> dict[str, Any]:
    """Read a JSON schema that a package ships, by its name, such as ``policy-1``."""
    text = resources.files(package).joinpath(f"{name}.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def check_schema(document: Mapping[str, Any], package: str, name: str, where: str) -> None:
    """Refuse a document that breaks a schema, naming the first field that does."""
    from jsonschema import Draft202012Validator  # here, as it takes long to load

    errors = Draft202012Validator(read_schema(package, name)).iter_errors(document)
    first = min(errors, key=lambda error: error.json_path, default=None)
    if first is None:
        return
    path = first.json_path.removeprefix("$").removeprefix(".")
    raise InputFileError(f"breaks the schema's rule '{first.validator}'", value=first.instance,
                         where=f"{where}: {path}" if path else where,
                         allowed=f"{first.validator} {json.dumps(first.validator_value)[:80]}")
