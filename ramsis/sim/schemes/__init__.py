"""Serving schemes, one file each, and their names on the command line."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.sim.plan import SchemeSpec
from ramsis.sim.schemes.bentoml import BentoML
from ramsis.sim.schemes.clipper import Clipper
from ramsis.sim.schemes.fixed import Fixed
from ramsis.sim.schemes.greedy import Greedy
from ramsis.sim.schemes.infaas import Infaas
from ramsis.sim.schemes.jellyfish_plus import JellyfishPlus
from ramsis.sim.schemes.model_switching import ModelSwitching
from ramsis.sim.schemes.policies import Policies
from ramsis.sim.schemes.symphony import Symphony

__all__ = ["SCHEMES", "BentoML", "Clipper", "Fixed", "Greedy", "Infaas", "JellyfishPlus",
           "ModelSwitching", "Policies", "Symphony", "scheme"]

SCHEMES: dict[str, type[Any]] = {
    kind.name: kind for kind in (JellyfishPlus, ModelSwitching, Greedy, Infaas, Clipper, BentoML,
                                   Symphony, Fixed)
}
"""What ``--scheme`` names; parameters are the fields of the class."""

_MAKERS = {"float": float, "int": int, "str": str}


def scheme(text: str) -> SchemeSpec:
    """The scheme that a text names: ``NAME`` or ``NAME:parameter=value,…``.

    >>> scheme("jellyfish-plus:headroom=1.05")
    JellyfishPlus(headroom=1.05)

    Raises
    ------
    InvalidValueError
        An unknown name or parameter, a value of the wrong kind or out of range, or a parameter
        that is needed and missing.
    """
    name, _, rest = text.partition(":")
    if name not in SCHEMES:
        raise InvalidValueError(describe("unknown scheduler", where="scheduler", value=name,
                                         allowed=", ".join(SCHEMES)))
    known = {item.name: item for item in fields(SCHEMES[name])}
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in known or not equals or key in given:
            raise InvalidValueError(
                describe("not a parameter of the scheduler", where=f"scheduler {name}", value=part,
                         allowed=", ".join(f"{k}={f.type}" for k, f in known.items()))
            )
        given[key] = _value(known[key], value, name)
    for key, item in known.items():
        if key not in given and item.default is MISSING:
            raise InvalidValueError(describe("parameter is missing", where=f"scheduler {name}",
                                             value=text, allowed=f"{name}:{key}=…"))
    spec: SchemeSpec = SCHEMES[name](**given)
    return spec


def _value(item: Field[Any], value: str, name: str) -> Any:
    try:
        return _MAKERS[str(item.type)](value)
    except ValueError:
        raise InvalidValueError(
            describe("not a value of the parameter", where=f"scheduler {name}: {item.name}",
                     value=value, allowed=f"a {item.type}")
        ) from None
