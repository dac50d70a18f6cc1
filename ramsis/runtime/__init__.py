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
from ramsis.runtime.fleet import FleetSelector, Wait, fleet_table
from ramsis.runtime.manifest import listed_policies
from ramsis.runtime.mixture import Uniform
from ramsis.runtime.monitor import LoadMonitor
from ramsis.runtime.policy_set import Choice, PolicySet
from ramsis.runtime.selector import DROP, Decision, Drop, Selector
from ramsis.runtime.table import KINDS, POLICY_FORMAT, check_format, lookup_table

__all__ = ["DROP", "Choice", "Decision", "Drop", "FleetSelector", "LoadMonitor", "PolicySet",
           "Selector", "Wait", "load", "load_selector", "load_set", "selector_of"]


def selector_of(
    document: object, file: str, uniform: Uniform | None = None
) -> Selector | FleetSelector:
    """The lookup of a policy document, by its kind; ``file`` names it in messages.

    ``uniform`` is the source of chance for policies that draw an answer, see :class:`Selector`.

    Raises
    ------
    InputFileError
        When what the lookup needs breaks the format.
    """
    fields = Fields(document, file)
    check_format(fields, POLICY_FORMAT)
    if fields.text("kind", KINDS) == "fleet":
        return FleetSelector(fleet_table(fields), uniform)
    return Selector(lookup_table(fields), uniform)


def load_selector(
    path: str | os.PathLike[str], *, uniform: Uniform | None = None
) -> Selector | FleetSelector:
    """The lookup of one policy file, of a worker or of a fleet.

    ``uniform`` is the source of chance for policies that draw an answer, see :class:`Selector`.

    Raises
    ------
    InputFileError
        When the file cannot be read or what the lookup needs breaks the format.
    """
    return selector_of(read_json(path), str(path), uniform)


def load_set(
    folder: str | os.PathLike[str], *, on_above_highest: Callable[[float], object] | None = None,
    uniform: Uniform | None = None,
) -> PolicySet[Selector] | PolicySet[FleetSelector]:
    """The policies that a folder's ``manifest.json`` lists; see :class:`PolicySet`.

    ``uniform`` is the source of chance for policies that draw an answer, see :class:`Selector`.

    Raises
    ------
    InputFileError
        When there is no manifest, a policy file is missing or has changed since, or breaks the
        format, two are for the same load and arrival process, or they are of several kinds.
    """
    listed = listed_policies(Path(folder))
    selectors = [selector_of(one.document, str(one.path), uniform) for one in listed]
    workers = [one for one in selectors if isinstance(one, Selector)]
    fleets = [one for one in selectors if isinstance(one, FleetSelector)]
    if workers and fleets:
        raise InputFileError(describe("policies of several kinds in one set", where=str(folder),
                                      allowed=" or ".join(KINDS)))
    try:
        if fleets:
            return PolicySet(fleets, on_above_highest=on_above_highest)
        return PolicySet(workers, on_above_highest=on_above_highest)
    except InvalidValueError as error:
        raise InputFileError(describe(str(error), where=str(folder))) from None


def load(
    path: str | os.PathLike[str], *, uniform: Uniform | None = None,
) -> Selector | FleetSelector | PolicySet[Selector] | PolicySet[FleetSelector]:
    """A folder as a :class:`PolicySet`, a policy file as its selector."""
    if Path(path).is_dir():
        return load_set(path, uniform=uniform)
    return load_selector(path, uniform=uniform)
