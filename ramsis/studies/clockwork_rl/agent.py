"""Trained scheduling agents: a small neural network, and its file format.

The network maps the observation of a worker and its most urgent models to an action (see
:mod:`ramsis.studies.clockwork_rl.scheduler` for both):

    x₀ = clip(observation, low, high) / unit
    xₖ = tanh(xₖ₋₁ Wₖ + bₖ)      but for the last layer, which has no tanh

The last layer returns a logit for every choice of every part of the action. In each part the
allowed choice with the largest logit is taken, the first of equal ones; or, if the agent plays
with *chance*, a random one with the probabilities softmax(x). Numbers have 32 bits, as in
training, and running an agent needs only NumPy.

The file is JSON of the format ``ramsis.agent/1``: reading it runs no code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ramsis.errors import POSITIVE, InputFileError, Rule
from ramsis.fields import Fields
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.records import Record, names

AGENT_FORMAT = "ramsis.agent/1"
_MOST_SLOTS = 1000  # far above any agent's, so that a damaged file does not exhaust memory
_MOST_BATCH = 10_000
_MODEST = Rule("a number from -1e6 to 1e6", lambda value: abs(value) <= 1e6)
_UNIT = Rule("a number from 1e-6 to 1e6", lambda value: 1e-6 <= value <= 1e6)
_SHIPPED = "clockwork-24ms.json"

Vector = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Layer:
    """Linear layer: ``weights`` of shape (inputs, outputs), ``bias`` of shape (outputs,)."""

    weights: Vector
    bias: Vector

    @classmethod
    def from_fields(cls, item: Fields) -> Layer:
        """Read a layer from a file."""
        item.only(("weights", "bias"))
        bias, rows = _vector(item.numbers("bias", _MODEST)), item.entries("weights")
        return cls(np.stack([_vector(rows.numbers(row, _MODEST, len(bias))) for row in rows]),
                   bias)

    def to_document(self) -> dict[str, Any]:
        """Return the layer as JSON-serialisable values."""
        return {"weights": [_plain(row) for row in self.weights], "bias": _plain(self.bias)}


@dataclass(frozen=True)
class Scaling(Record):
    """Scaling of an observed number: the range to clip it to, and the unit to divide it by."""

    low: Annotated[float, _MODEST]
    high: Annotated[float, _MODEST]
    unit: Annotated[float, _UNIT]

    def check(self, item: Fields) -> None:
        """Refuse a range with ``low`` above ``high``."""
        if self.low > self.high:
            raise item.refusal("low", "above high", value=self.low,
                               allowed=f"a number <= {self.high:g}")


@dataclass(frozen=True, eq=False)
class Agent:
    """Trained scheduling agent: its observation, actions and network."""

    slots: int  # number of models that it observes
    batch_sizes: tuple[int, ...]  # batch sizes to choose from, increasing
    every_ms: float  # time between two decisions
    # scaling of a slot's number of waiting requests, of its laxity, and of the worker's work
    count: Scaling
    laxity_ms: Scaling
    work_ms: Scaling
    layers: tuple[Layer, ...]
    chance: bool = False  # whether choices are random with the network's probabilities
    training: Mapping[str, Any] = field(default_factory=dict)  # notes on the training

    @cached_property
    def limits(self) -> tuple[Vector, Vector, Vector]:
        """Low, high and unit of each observed number, in the shape of the observation."""
        rows = [(scaling.low, scaling.high, scaling.unit) for scaling in
                (*[self.count] * self.slots, *[self.laxity_ms] * self.slots, self.work_ms)]
        low, high, unit = np.array(rows, dtype=np.float32).T.copy()
        return low, high, unit

    def features(self, observation: Vector) -> Vector:
        """Scale an observation to the inputs of the network, of equal shape."""
        low, high, unit = self.limits
        return (np.minimum(np.maximum(observation, low), high) / unit).astype(np.float32)

    def act(
        self, observation: Vector, mask: Mask, chance: np.random.Generator | None = None
    ) -> NDArray[np.int64]:
        """Return the action for an observation.

        Parameters
        ----------
        observation : ndarray, shape (2 slots + 1,)
        mask : ndarray of bool, shape (slots · (2 + batch sizes),)
            The allowed choices of all parts, one part after the other.
        chance : Generator, optional
            Draws each choice with the network's probability; by default the likeliest is taken.

        Returns
        -------
        ndarray of int, shape (2 slots,)
            For each slot whether to run it, and then for each the number of the batch size.
        """
        value: NDArray[Any] = self.features(observation)
        for layer in self.layers[:-1]:
            value = np.tanh(value @ layer.weights + layer.bias)
        value = value @ self.layers[-1].weights + self.layers[-1].bias
        if chance is not None:  # Gumbel-max trick: the argmax then follows softmax(x)
            value = value + chance.gumbel(size=len(value))
        value = np.where(mask, value, -np.inf)
        run = value[: 2 * self.slots].reshape(self.slots, 2).argmax(axis=1)
        size = value[2 * self.slots:].reshape(self.slots, -1).argmax(axis=1)
        return np.concatenate((run, size))

    def to_document(self) -> dict[str, Any]:
        """Return the agent as JSON-serialisable values."""
        values = {name: getattr(self, name) for name in names(Agent)}
        scalings = {name: asdict(value) for name, value in values.items()
                    if isinstance(value, Scaling)}
        return {"format": AGENT_FORMAT, **values, **scalings,
                "batch_sizes": list(self.batch_sizes),
                "layers": [layer.to_document() for layer in self.layers]}


def read_agent(path: str | os.PathLike[str]) -> Agent:
    """Read an agent from a file."""
    return agent_from_document(read_json(path), str(path))


def shipped_agent() -> Agent:
    """Return the agent that is shipped with the package."""
    place = resources.files(__package__).joinpath("agents", _SHIPPED)
    with resources.as_file(place) as path:
        return read_agent(path)


def write_agent(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file, atomically."""
    write_atomic(Path(path), canonical_json(agent.to_document()))


def agent_from_document(document: Mapping[str, Any], where: str) -> Agent:
    """Read an agent from a parsed file; ``where`` begins the place in every message."""
    top = Fields(document, where)
    top.of_format(AGENT_FORMAT)
    top.only(("format", *names(Agent)))
    slots = top.whole("slots", 1, _MOST_SLOTS)
    sizes = top.items("batch_sizes")
    if not (all(type(size) is int and 0 < size <= _MOST_BATCH for size in sizes)
            and sorted(set(sizes)) == sizes and sizes[0] == 1):
        raise top.refusal("batch_sizes", "not batch sizes", value=sizes,
                          allowed="rising whole numbers from 1")
    layers = tuple(Layer.from_fields(layer) for layer in top.children("layers"))
    _check_shapes(layers, 2 * slots + 1, slots * (2 + len(sizes)), where)
    return Agent(
        slots, tuple(sizes), top.number("every_ms", POSITIVE),
        Scaling.from_fields(top.child("count")), Scaling.from_fields(top.child("laxity_ms")),
        Scaling.from_fields(top.child("work_ms")), layers, top.flag("chance"),
        _notes(top) if "training" in top else {})


def _notes(top: Fields) -> Mapping[str, Any]:
    """Return the notes of the file; any JSON object."""
    top.child("training")
    notes: Mapping[str, Any] = top.value("training")
    return notes


def _check_shapes(layers: Sequence[Layer], inputs: int, outputs: int, where: str) -> None:
    """Check that the layers fit each other, the observation and the actions."""
    for i, layer in enumerate(layers):
        if len(layer.weights) != inputs:
            raise InputFileError("network of the wrong shape",
                                 where=f"{where}: layers[{i}].weights",
                                 value=f"{len(layer.weights)} rows", allowed=f"{inputs} rows")
        inputs = len(layer.bias)
    if inputs != outputs:
        raise InputFileError(
            "network of the wrong shape", where=f"{where}: layers[{len(layers) - 1}].bias",
            value=f"{inputs} numbers", allowed=f"{outputs} numbers, one for each choice")


def _vector(numbers: Sequence[float]) -> Vector:
    return np.array(numbers, dtype=np.float32)


def _plain(numbers: Vector) -> list[float]:
    """Return 32-bit numbers in their shortest decimal form."""
    return [float(str(number)) for number in numbers]
