"""Base of the PyTorch back ends: threads, device, and the timed call.

The timed call begins with tensors in host memory, and ends with logits in host memory, as for a
server. On a GPU it includes the copies in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles.measure.backends.backend import MIG, LoadedModel, Options, library


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
                    answer = network(**{name: one.to(device) for name, one in prepared.items()})
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
