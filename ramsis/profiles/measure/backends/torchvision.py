"""torchvision's image classifiers by name, on random images of each model's own input size.

The weights are random, since latency does not depend on them; nothing is downloaded. Input size
and accuracy are those that torchvision publishes with the model's default weights.
"""

from __future__ import annotations

from typing import Any

from ramsis.profiles.measure.backends.backend import (
    LoadedModel,
    Options,
    Published,
    library,
    unknown_model,
)
from ramsis.profiles.measure.backends.torch import Torch


class Torchvision:
    """Models are called as torchvision calls them."""

    libraries: tuple[str, ...] = ("torch", "torchvision")

    def __init__(self, options: Options) -> None:
        self._torch = Torch(options)
        self._models = library("torchvision.models", "torch")
        self._known = self._models.list_models(module=self._models)
        self.hardware = self._torch.hardware
        self.notes = self._torch.notes("images")

    def name(self, model: str) -> str:
        """Return the classifier's name, which is that in the profile; refuse an unknown one."""
        if model not in self._known:
            raise unknown_model("torchvision classifier", model, self._known)
        return model

    def open(self, model: str) -> LoadedModel:
        """Load a classifier."""
        side = self._weights(model).transforms().crop_size[0]
        torch = self._torch.torch
        return self._torch.loaded(
            self._models.get_model(model, weights=None),
            _Images(torch, side),
            ["batch", 3, side, side],
        )

    def published(self, model: str) -> Published:
        """Return the published top-1 accuracy of the model's default weights."""
        weights = self._weights(model)
        (data, metrics), = weights.meta["_metrics"].items()
        return Published(round(metrics["acc@1"] / 100, 6),
                         f"{data} top-1 that torchvision publishes for {weights}")

    def _weights(self, model: str) -> Any:
        return self._models.get_model_weights(model).DEFAULT


class _Images:
    """Random images of a size, drawn once: drawing takes longer than many a model does."""

    def __init__(self, torch: Any, side: int) -> None:
        self._torch, self._shape = torch, (3, side, side)
        self._drawn = torch.randn(0, *self._shape)

    def __call__(self, batch: int) -> Any:
        """Return a batch of the images."""
        if batch > len(self._drawn):
            self._drawn = self._torch.randn(batch, *self._shape)
        return self._drawn[:batch]
