"""What a serving system embeds: lookup, policy set and load monitor (standard library only).

>>> from ramsis import runtime
>>> policies = runtime.load("policies_out/example")                        # doctest: +SKIP
>>> monitor = runtime.LoadMonitor()                                        # doctest: +SKIP
>>> monitor.record(now_ms=0.0)                                             # doctest: +SKIP
>>> choice = policies.at(monitor.load_qps(now_ms=50.0))                    # doctest: +SKIP
>>> model, batch = choice.selector(queued=3, slack_ms=120.0)               # doctest: +SKIP
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.files import read_json
from ramsis.runtime.fields import Fields
from ramsis.runtime.manifest import listed_policies
from ramsis.runtime.monitor import LoadMonitor
from ramsis.runtime.policy_set import Choice, PolicySet
from ramsis.runtime.selector import Decision, Selector
from ramsis.runtime.table import lookup_table

__all__ = ["Choice", "Decision", "LoadMonitor", "PolicySet", "Selector", "load", "load_selector",
           "load_set"]


def load_selector(path: str | os.PathLike[str]) -> Selector:
    """The lookup of one policy file.

    Raises
    ------
    InputFileError
        When the file cannot be read or what the lookup needs breaks the format.
    """
    return Selector(lookup_table(Fields(read_json(path), str(path))))


def load_set(
    folder: str | os.PathLike[str], *, on_above_highest: Callable[[float], object] | None = None
) -> PolicySet:
    """The policies that a folder's ``manifest.json`` lists; see :class:`PolicySet`.

    Raises
    ------
    InputFileError
        When there is no manifest, a policy file is missing or has changed since, or breaks the
        format, or two are for the same load and arrival process.
    """
    listed = listed_policies(Path(folder))
    selectors = [Selector(lookup_table(Fields(one.document, str(one.path)))) for one in listed]
    try:
        return PolicySet(selectors, on_above_highest=on_above_highest)
    except InvalidValueError as error:
        raise InputFileError(describe(str(error), where=str(folder))) from None


def load(path: str | os.PathLike[str]) -> Selector | PolicySet:
    """A folder as a :class:`PolicySet`, a policy file as a :class:`Selector`."""
    return load_set(path) if Path(path).is_dir() else load_selector(path)
