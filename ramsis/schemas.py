"""JSON schemas of the project's files; each schema is beside the module that reads the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any

from ramsis.errors import InputFileError


@cache
def read_schema(package: str, name: str) -> dict[str, Any]:
    """Read a JSON schema that a package ships, by its name, such as ``policy-1``."""
    text = resources.files(package).joinpath(f"{name}.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def _validator(package: str, name: str) -> Any:
    """Return a validator (draft 2020-12) that checks only the extremes of arrays of numbers.

    The package ``jsonschema`` validates each item of an array separately, in 25 µs. The table and
    the quantiles of a policy have tens of thousands of items.
    """
    from jsonschema import Draft202012Validator  # here, as it takes long to load
    from jsonschema.validators import extend

    schema = read_schema(package, name)
    each = Draft202012Validator.VALIDATORS["items"]

    def holds(validator: Any, rule: Any, values: Any) -> bool:
        """Return True if all ``values`` surely satisfy a rule; False leaves it undecided."""
        rule = (schema["$defs"][rule["$ref"].removeprefix("#/$defs/")]
                if rule.keys() == {"$ref"} else rule)
        if rule.keys() <= _OF_ARRAYS and rule.get("type") == "array":
            least = rule.get("minItems", 0)
            return (isinstance(values, list)
                    and all(type(value) is list and len(value) >= least for value in values)
                    and holds(validator, rule.get("items", {}), list(chain.from_iterable(values))))
        extremes = _extremes(values, rule.get("type")) if rule.keys() <= _RANGE else ()
        return bool(extremes) and all(
            validator.evolve(schema=rule).is_valid(value) for value in extremes)

    def items(validator: Any, rule: Any, values: Any, within: Any) -> Iterator[Any]:
        if not holds(validator, rule, values):
            yield from each(validator, rule, values, within)

    return extend(Draft202012Validator, {"items": items})(schema)  # type: ignore[no-untyped-call,unused-ignore]


_OF_ARRAYS = {"type", "description", "minItems", "items"}
_RANGE = {"type", "description", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
"""Keywords of a rule that holds for all numbers if it holds for the least and the largest."""
_KINDS: dict[str, set[type]] = {"integer": {int}, "number": {int, float}}


def _extremes(values: Any, kind: object) -> tuple[float, ...]:
    """Return the extremes of an array of numbers of the JSON type ``kind``; else an empty tuple.

    If the type also allows null, nulls are left out.
    """
    if not isinstance(values, list):
        return ()
    if isinstance(kind, list) and len(kind) == 2 and kind[1] == "null":
        kind, values = kind[0], [value for value in values if value is not None]
    if (values and isinstance(kind, str) and kind in _KINDS
            and set(map(type, values)) <= _KINDS[kind]
            and all(value == value for value in values)):
        return min(values), max(values)
    return ()


def check_schema(document: Mapping[str, Any], package: str, name: str, where: str) -> None:
    """Refuse a document that breaks a schema, naming the first field that does."""
    errors = _validator(package, name).iter_errors(document)
    first = min(errors, key=lambda error: error.json_path, default=None)
    if first is None:
        return
    path = first.json_path.removeprefix("$").removeprefix(".")
    raise InputFileError(f"breaks the schema's rule '{first.validator}'", value=first.instance,
                         where=f"{where}: {path}" if path else where,
                         allowed=f"{first.validator} {json.dumps(first.validator_value)[:80]}")
