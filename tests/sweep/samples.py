"""Small specifications."""

import csv
from pathlib import Path
from typing import Any

from ramsis.sweep import SweepSpec
from ramsis.sweep.run import RECORD_NAME

WORKER = "round-robin:grid=fixed:10,max_queue=8"
GREEDY = """
profiles = "digits-cpu"
workers = 1
slo_ms = 25
load_qps = [100, 150, 200]
scheduler = "greedy"
duration_s = 0.2
"""
"""A specification of three cells without policies."""


def document(profile: Path | str, **changes: Any) -> dict[str, Any]:
    """Two loads, two schemes, half a second: cells in milliseconds; some keys changed."""
    return {"profiles": str(profile), "workers": 2, "slo_ms": 100, "load_qps": [100, 300],
            "scheduler": [WORKER, "jellyfish-plus"], "duration_s": 0.5, **changes}


def spec(profile: Path | str, **changes: Any) -> SweepSpec:
    """The same, read."""
    return SweepSpec.of(document(profile, **changes))


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of a sweep, by name; not the record of what was asked for."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())
            if path.is_file() and path.name != RECORD_NAME}


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))
