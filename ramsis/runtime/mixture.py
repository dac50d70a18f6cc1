"""The one place of a table that may have two answers, drawn between by chance.

A policy that meets a budget of violations exactly, and is the most accurate that does, needs
chance in at most one state: see :mod:`ramsis.synthesis.budget`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

from ramsis.runtime.fields import Fields, Rule

__all__ = ["Either", "Mixture", "Uniform", "drawn_from", "mixture_in"]

Uniform = Callable[[], float]
"""Gives independent numbers, uniform in [0, 1)."""

A = TypeVar("A")

_CHANCE = Rule("a number > 0 and < 1", lambda value: 0 < value < 1)


class Mixture(NamedTuple):
    """A second answer at one place of a table.

    Attributes
    ----------
    probability
        Of the second answer; the table's own has the rest.
    place
        Indices into the table: of a worker, row and slack bin; of a fleet, row of the idle level,
        of the queue level, and slack bin; all from 0.
    answer
        The second answer: model and batch of a worker, one number of a fleet.
    """

    probability: float
    place: tuple[int, ...]
    answer: tuple[int, ...]


class Either(NamedTuple, Generic[A]):
    """What stands at the place of a mixture when it is looked up."""

    usual: A
    other: A
    probability: float

    def drawn(self, uniform: Uniform) -> A:
        """One of the two."""
        return self.other if uniform() < self.probability else self.usual


def drawn_from(uniform: Uniform | None) -> Uniform:
    """The given source of chance, else one that starts from the same seed each time."""
    return Random(0).random if uniform is None else uniform


def mixture_in(
    fields: Fields, shape: Sequence[int], numbers: int,
    refused: Callable[[tuple[int, ...], tuple[int, ...]], str | None],
) -> Mixture | None:
    """The mixture of a policy document, checked; None where there is none.

    Parameters
    ----------
    shape
        Of the table.
    numbers
        How many an answer has.
    refused
        Why an answer cannot stand at a place, in words of what is allowed; None where it can.

    Raises
    ------
    InputFileError
        A place outside the table, an answer that cannot stand there, or a probability that is not
        between 0 and 1.
    """
    if "mixture" not in fields or fields.value("mixture") is None:
        return None
    mixture = fields.child("mixture")
    mixture.only(Mixture._fields)
    place, answer = (_whole(mixture, key, length)
                     for key, length in (("place", len(shape)), ("answer", numbers)))
    if not all(0 <= at < size for at, size in zip(place, shape, strict=True)):
        raise mixture.refusal("place", "outside the table", value=list(place),
                              allowed=f"indices below {list(shape)}")
    allowed = refused(place, answer)
    if allowed is not None:
        raise mixture.refusal("answer", "no answer for this place", value=list(answer),
                              allowed=allowed)
    return Mixture(mixture.number("probability", _CHANCE), place, answer)


def _whole(mixture: Fields, key: str, length: int) -> tuple[int, ...]:
    found: list[Any] = mixture.items(key, length)
    if set(map(type, found)) != {int}:
        raise mixture.refusal(key, "not whole numbers", value=found)
    return tuple(found)
