"""Runtime for serving systems: lookup, routing, policy set, load monitor (standard library).

>>> from ramsis import runtime
>>> policies = runtime.load("policies_out/example")                        # doctest: +SKIP
>>> monitor = runtime.LoadMonitor()                                        # doctest: +SKIP
>>> monitor.record(now_ms=0.0)                                             # doctest: +SKIP
>>> choice = policies.at(monitor.load_qps(now_ms=50.0))                    # doctest: +SKIP
>>> model, batch = choice.selector(queued=3, slack_ms=120.0)               # doctest: +SKIP

May import: no other room.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ramsis.fields import Fields
from ramsis.files import read_json
from ramsis.lazy_names import names_from
from ramsis.runtime.cascade import cascade_rule
from ramsis.runtime.decisions import DROP, Decision, Drop, Wait
from ramsis.runtime.manifest import PolicyFile, read_manifest
from ramsis.runtime.monitor import LoadMonitor
from ramsis.runtime.policy_set import Choice, Level, PolicySet, Station, set_of_selectors
from ramsis.runtime.routing import DISPATCHES, DispatchRule
from ramsis.runtime.selector import Selector
from ramsis.runtime.table import DecisionTable
from ramsis.runtime.table_reader import decision_table

__all__ = ["DISPATCHES", "DROP", "Choice", "Decision", "DecisionTable", "DispatchRule", "Drop",
           "Level", "LoadMonitor", "PolicySet", "Selector", "Station", "Wait", "load",
           "load_selector", "load_set", "selector_of", "set_of_selectors"]

__getattr__, __dir__ = names_from(globals(), {
    "ramsis.runtime.dispatcher": "DispatchSettings Dispatcher",
    "ramsis.runtime.fronts": "AsyncFront ThreadFront",
    "ramsis.runtime.replan": "Replanner",
})



def selector_of(document: object, file: str) -> Selector:
    """Return the lookup of a policy document; ``file`` names it in messages."""
    fields = Fields(document, file)
    table = decision_table(fields)
    return Selector(table, cascade_rule(fields, table))


def load_selector(path: str | os.PathLike[str]) -> Selector:
    """Load the lookup of one policy file."""
    return selector_of(read_json(path), str(path))


def load_set(
    folder: str | os.PathLike[str], *, on_above_highest: Callable[[float], object] | None = None,
) -> PolicySet[Selector]:
    """Load the policies listed in a folder's ``manifest.json``; see :class:`PolicySet`.

    Policy files that are missing or have changed since are an InputFileError.
    """
    def selector(listed: PolicyFile) -> Selector:
        return selector_of(listed.document(), str(listed.path))

    return read_manifest(Path(folder)).map(selector, on_above_highest=on_above_highest)


def load(path: str | os.PathLike[str]) -> Selector | PolicySet[Selector]:
    """Load a folder as a :class:`PolicySet`, or a policy file as its selector."""
    if Path(path).is_dir():
        return load_set(path)
    return load_selector(path)
