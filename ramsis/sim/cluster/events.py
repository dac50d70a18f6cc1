"""What the cluster engine tells a scheduler."""

from __future__ import annotations

__all__ = ["Listener"]


class Listener:
    """The events of a run; each is ignored here."""

    def on_start(self) -> None:
        """The run begins."""

    def on_arrival(self, request: int) -> None:
        """A request has arrived."""

    def on_end(self, worker: int, batch: int) -> None:
        """A batch has ended; of a continuous batch, one request has left it."""

    def on_loaded(self, worker: int, model: int) -> None:
        """A model has been loaded."""

    def on_ready(self, request: int) -> None:
        """A request that a machine has prepared waits for inference now."""

    def on_processed(self, request: int) -> None:
        """A request has left its machine, answered."""

    def on_scaled(self, worker: int) -> None:
        """A worker that was started is active."""

    def on_timer(self, token: object) -> None:
        """A time asked for has come."""

    def figures(self) -> dict[str, float]:
        """Figures of its own, at the end of the run; they become columns of its row."""
        return {}
