"""The PyTorch back ends: torchvision's image classifiers, and text classifiers of transformers.

The timed call begins with tensors in host memory, and ends with logits in host memory, as for a
server. On a GPU it includes the copies in both directions.

The weights are random, since latency does not depend on them; nothing is downloaded. The size of
images and the accuracy of an image classifier are those that torchvision publishes with the
model's default weights. Text classifiers are the BERTs of Turc et al., Well-Read Students Learn
Better (2019), by name, or a configuration of the user's own in a folder or JSON file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles.measure.backends.backend import (
    MIG,
    Backend,
    LoadedModel,
    Options,
    Published,
    library,
    unknown_model,
)

_BERTS = {"bert-tiny": (2, 128, 2), "bert-mini": (4, 256, 4), "bert-small": (4, 512, 8),
          "bert-medium": (8, 512, 8), "bert-base": (12, 768, 12)}
"""Name to layers, hidden size and attention heads (2019, table 1 and the released weights)."""


class Torch:
    """PyTorch with a number of threads, on a device."""

    def __init__(self, options: Options) -> None:
        self.torch = library("torch", "torch")
        if options.device.startswith(MIG) and self.torch.cuda.is_initialized():
            raise InvalidValueError("CUDA runs already, and cannot change its GPU", where="device",
                                    value=options.device, allowed="a process of its own")
        self.device, self._weights = options.seen_device(), options.weights
        self._named = options.device
        if self.device == "cuda" and not self.torch.cuda.is_available():
            raise InvalidValueError("PyTorch finds no GPU", where="device", value=options.device,
                                    allowed="cpu")
        self.torch.set_num_threads(options.threads)
        self.torch.manual_seed(0)

    @property
    def hardware(self) -> dict[str, object]:
        """Device, with the GPU's name where it is one."""
        if self.device == "cpu":
            return {"device": "cpu"}
        return {"device": "cuda", "gpu": self.torch.cuda.get_device_name(),
                "cuda": self.torch.version.cuda,
                **({"mig_device": self._named} if self._named != "cuda" else {})}

    def notes(self, inputs: str) -> dict[str, str]:
        """Return the notes on how a model with random weights is measured."""
        return {
            "latency": f"wall time of one forward pass in inference mode, from random {inputs} in "
                       "the host's memory to logits there",
            "load_ms": "time to build the model with random weights",
            "memory_mb": "parameters and buffers in 10^6 bytes",
            "weights": "random: latency does not depend on them",
        }

    def loaded(
        self, network: Any, prepare: Callable[[int], Any], input_shape: object,
        prepare_sizes: Callable[[Sequence[int]], Any] | None = None, size_unit: str = "units",
    ) -> LoadedModel:
        """Load a network in inference mode; ``prepare`` makes a tensor, or tensors by name."""
        if self._weights is not None:
            self._load(network, self._weights)
        network = network.eval().to(self.device)
        torch, device = self.torch, self.device

        def run(prepared: Any) -> Any:
            with torch.inference_mode():
                if isinstance(prepared, dict):
                    answer = network(**{name: tensor.to(device)
                                        for name, tensor in prepared.items()})
                else:
                    answer = network(prepared.to(device))
                # transformers hand out the logits in an object of their own
                return getattr(answer, "logits", answer).cpu()

        size = sum(tensor.numel() * tensor.element_size()
                   for part in (network.parameters(), network.buffers()) for tensor in part)
        return LoadedModel(prepare, run, input_shape, memory_mb=size / 1e6,
                           inputs=_inputs(prepare(1)), feed=self._feed,
                           fetch=lambda answer: {"logits": answer.numpy()},
                           prepare_sizes=prepare_sizes, size_unit=size_unit)

    def _load(self, network: Any, weights: str) -> None:
        """Load trained weights from a file, which can hold tensors only."""
        try:
            network.load_state_dict(self.torch.load(weights, map_location="cpu",
                                                    weights_only=True))
        except Exception as error:  # torch raises errors of many classes
            reason = " ".join(str(error).split())[:200]
            raise InputFileError(f"not weights of this model ({reason})", where=weights) from error

    def _feed(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """Convert arrays to tensors: a single image input by position, all others by name."""
        tensors = {name: self.torch.from_numpy(array) for name, array in arrays.items()}
        return tensors["input"] if tensors.keys() == {"input"} else tensors


def _inputs(prepared: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    tensors = prepared if isinstance(prepared, dict) else {"input": prepared}
    return {name: (str(tensor.dtype).rpartition(".")[2], tuple(tensor.shape[1:]))
            for name, tensor in tensors.items()}


class Torchvision(Backend):
    """Back end whose models are torchvision's classifiers, by their names there."""

    libraries: tuple[str, ...] = ("torch", "torchvision")

    def __init__(self, options: Options) -> None:
        self._torch = Torch(options)
        self._models = library("torchvision.models", "torch")
        self._known = self._models.list_models(module=self._models)
        self.hardware = self._torch.hardware
        self.notes = self._torch.notes("images")

    def name(self, model: str) -> str:
        """Return the classifier's name, by which the profile calls it; refuse an unknown one."""
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


class Transformers(Backend):
    """A configuration's sequence classifier on random tokens, all of them attended to."""

    libraries: tuple[str, ...] = ("torch", "transformers")

    def __init__(self, options: Options) -> None:
        self._torch = Torch(options)
        self._library = library("transformers", "torch")
        self._tokens = options.tokens
        self.hardware = self._torch.hardware
        self.notes = self._torch.notes("token ids")

    def name(self, model: str) -> str:
        """Return the model's name, or the stem of its configuration, as in the profile."""
        if model in _BERTS:
            return model
        if not Path(model).exists():
            raise unknown_model("BERT or configuration file", model, _BERTS)
        return Path(model).resolve().stem

    def open(self, model: str) -> LoadedModel:
        """Load a model for sequence classification."""
        config = self._config(model)
        network = self._library.AutoModelForSequenceClassification.from_config(config)
        return self._torch.loaded(
            network,
            partial(_texts, self._torch.torch, config.vocab_size, self._tokens),
            {"input_ids": ["batch", self._tokens], "attention_mask": ["batch", self._tokens]},
            partial(_texts_of, self._torch.torch, config.vocab_size), "tokens",
        )

    def _config(self, model: str) -> Any:
        if model in _BERTS:
            layers, hidden, heads = _BERTS[model]
            return self._library.BertConfig(
                num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                intermediate_size=4 * hidden,
            )
        try:
            return self._library.AutoConfig.from_pretrained(model, local_files_only=True)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputFileError(f"transformers cannot read the configuration ({reason})",
                                 where=model) from error


def _texts_of(torch: Any, vocabulary: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Make texts of different lengths, padded to the longest."""
    texts = _texts(torch, vocabulary, max(sizes), len(sizes))
    for mask, size in zip(texts["attention_mask"], sizes, strict=True):
        mask[size:] = 0
    return texts


def _texts(torch: Any, vocabulary: int, tokens: int, batch: int) -> dict[str, Any]:
    shape = (batch, tokens)
    return {"input_ids": torch.randint(0, vocabulary, shape),
            "attention_mask": torch.ones(shape, dtype=torch.int64)}
