"""The one place of a table that may have two actions, drawn between by chance.

A policy that meets a limit on violations exactly, and is the most accurate that does, needs chance
in at most one state: see :mod:`ramsis.synthesis.budget`. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Generic, NamedTuple, TypeVar

Uniform = Callable[[], float]
"""Gives independent numbers, uniform in [0, 1)."""

A = TypeVar("A")


class Randomised(NamedTuple):
    """A second action at one place of a table."""

    probability: float  # of the second action, in (0, 1); the table's own has the rest
    # indices, from 0: of the idle level after level 0, of the queue level after level 0, and of
    # the slack bin
    place: tuple[int, int, int]
    # the second action, as in the table: an index into its actions, -1 to wait, -2 to drop
    code: int


class Either(NamedTuple, Generic[A]):
    """What stands at the randomised place when it is looked up."""

    usual: A
    other: A
    probability: float

    def drawn(self, uniform: Uniform) -> A:
        """One of the two."""
        return self.other if uniform() < self.probability else self.usual


def drawn_from(uniform: Uniform | None) -> Uniform:
    """The given source of chance, else one that starts from the same seed each time."""
    return Random(0).random if uniform is None else uniform
