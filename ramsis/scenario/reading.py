"""Reading and writing scenario files, JSON or TOML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ramsis.files import canonical_json, read_document, write_atomic
from ramsis.runtime.fields import Fields
from ramsis.scenario.consistency import check_consistency
from ramsis.scenario.scenario import SCENARIO_FORMAT, Scenario

__all__ = ["SCENARIO_FORMAT", "read_scenario", "scenario_from_document", "write_scenario"]


def schema() -> dict[str, Any]:
    """Return the JSON schema of scenario files."""
    return Scenario.schema()


def read_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario from a file.

    Parameters
    ----------
    path : path
        ``ramsis.scenario/1``, as JSON or, where the name ends in ``.toml``, as TOML. Paths of
        traces are relative to its folder.
    """
    return scenario_from_document(read_document(path), str(path))


def scenario_from_document(document: Mapping[str, Any], where: str = "scenario") -> Scenario:
    """Read a scenario from a parsed file; ``where`` is its name in error messages."""
    scenario = Scenario.from_fields(Fields(document, where))
    check_consistency(scenario, where)
    return scenario


def write_scenario(scenario: Scenario, path: str | os.PathLike[str]) -> None:
    """Write a scenario as JSON, atomically."""
    write_atomic(path, canonical_json(scenario.to_document()))
