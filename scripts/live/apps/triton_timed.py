"""A model of Triton's Python backend that takes a stated time, as on an accelerator."""

import json
import time

import numpy as np
import triton_python_backend_utils as utils


class TritonPythonModel:
    """One instance; its label is 1, the right one, as often as its accuracy says."""

    def initialize(self, args):
        """Read the times and the accuracy."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.first_ms, self.each_ms, self.accuracy = (
            float(parameters[name]["string_value"])
            for name in ("first_ms", "each_ms", "accuracy"))
        self.rng = np.random.default_rng()

    def execute(self, requests):
        """Answer all requests of Triton's batch after its time."""
        begun = time.monotonic()
        counts = [len(utils.get_input_tensor_by_name(one, "X").as_numpy()) for one in requests]
        labels = [(self.rng.random((count, 1)) < self.accuracy).astype(np.int64)
                  for count in counts]
        took_s = (self.first_ms + self.each_ms * sum(counts)) / 1000.0
        time.sleep(max(0.0, begun + took_s - time.monotonic()))
        return [utils.InferenceResponse([utils.Tensor("label", label)]) for label in labels]
