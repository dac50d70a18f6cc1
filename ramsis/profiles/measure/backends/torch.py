"""What the PyTorch back ends share: threads, device, and the timed call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ramsis.errors import InvalidValueError, describe
from ramsis.profiles.measure.backends.backend import LoadedModel, Options, library

__all__ = ["Torch"]


class Torch:
    """PyTorch with a number of threads, on a device."""

    def __init__(self, options: Options) -> None:
        self.torch = library("torch", "torch")
        self.device = options.device
        if self.device == "cuda" and not self.torch.cuda.is_available():
            raise InvalidValueError(describe("PyTorch finds no GPU", where="device",
                                             value="cuda", allowed="cpu"))
        self.torch.set_num_threads(options.threads)
        self.torch.manual_seed(0)

    @property
    def hardware(self) -> dict[str, object]:
        """The GPU, if it is one."""
        if self.device == "cpu":
            return {"device": "cpu"}
        return {"device": "cuda", "gpu": self.torch.cuda.get_device_name(),
                "cuda": self.torch.version.cuda}

    def loaded(
        self, network: Any, prepare: Callable[[int], Any], input_shape: object
    ) -> LoadedModel:
        """A network in inference mode; ``prepare`` makes keyword or positional input."""
        network = network.eval().to(self.device)
        torch, on_gpu = self.torch, self.device == "cuda"

        def run(prepared: Any) -> Any:
            with torch.inference_mode():
                answer = network(**prepared) if isinstance(prepared, dict) else network(prepared)
            if on_gpu:
                torch.cuda.synchronize()
            return answer

        size = sum(tensor.numel() * tensor.element_size()
                   for part in (network.parameters(), network.buffers()) for tensor in part)
        return LoadedModel(prepare, run, input_shape, memory_mb=size / 1e6)
