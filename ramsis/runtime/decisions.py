"""Decisions that a lookup returns: run a batch, wait, or drop a request. Standard library only."""

from __future__ import annotations

from typing import ClassVar, NamedTuple


class _ModelAndBatch(NamedTuple):
    model: str
    batch: int


class Decision(_ModelAndBatch):
    """Decision to run ``batch`` requests, earliest deadlines first, on ``model``.

    It unpacks into ``model, batch``. The attribute ``run_as`` is the batch size to run: ``batch``,
    or a larger one that is faster, to which the batch is padded.

    >>> model, batch = decision = Decision("small", 3, run_as=4)
    >>> batch, decision.run_as
    (3, 4)
    """

    run_as: int
    second: ClassVar[bool] = False  # whether the requests already have a first answer

    def __new__(cls, model: str, batch: int, run_as: int | None = None) -> Decision:
        """Create a decision; ``run_as`` is the batch by default."""
        decision = super().__new__(cls, model, batch)
        decision.run_as = batch if run_as is None else run_as
        return decision

    def __getnewargs__(self) -> tuple[str, int, int]:
        return (self.model, self.batch, self.run_as)

    def __repr__(self) -> str:
        padded = "" if self.run_as == self.batch else f", run_as={self.run_as}"
        return f"{type(self).__name__}(model={self.model!r}, batch={self.batch}{padded})"


class Drop(NamedTuple):
    """Decision to drop the request at the queue's head, and to look up again."""


class Wait(NamedTuple):
    """Decision to wait until a request arrives, a worker becomes idle, or the slack has fallen.

    ``below_ms`` is the slack of the queue's head below which to look up again; ``None``: never.
    """

    below_ms: float | None


DROP = Drop()
