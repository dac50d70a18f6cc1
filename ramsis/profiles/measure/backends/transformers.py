"""Text classifiers of transformers, built from a configuration with random weights.

Models are the BERTs of Turc et al., Well-Read Students Learn Better (2019), by name, or a folder
or JSON file with a configuration of one's own. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ramsis.errors import InputFileError
from ramsis.profiles.measure.backends.backend import (
    LoadedModel,
    Options,
    Published,
    library,
    unknown_model,
)
from ramsis.profiles.measure.backends.torch import Torch

_BERTS = {"bert-tiny": (2, 128, 2), "bert-mini": (4, 256, 4), "bert-small": (4, 512, 8),
          "bert-medium": (8, 512, 8), "bert-base": (12, 768, 12)}
"""Name to layers, hidden size and attention heads (2019, table 1 and the released weights)."""


class Transformers:
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

    def published(self, model: str) -> Published | None:
        """Return None: no accuracies are published for these models."""
        return None

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
