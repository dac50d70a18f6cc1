"""A model of Triton's Python backend that takes a stated time by count and longest size.

It writes a line for each batch: when it began, on the clock of the machine, and the identifiers of
its requests in their order.
"""

import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as utils


class TritonPythonModel:
    """One instance."""

    def initialize(self, args):
        """Read the times, and where batches are recorded."""
        parameters = json.loads(args["model_config"])["parameters"]
        # By count less 1 and longest size less 1.
        self.times_s = json.loads(Path(parameters["times"]["string_value"]).read_text())
        self.record = Path(parameters["record"]["string_value"])

    def execute(self, requests):
        """Answer all requests of Triton's batch after its time."""
        begun = time.monotonic()
        longest = max(utils.get_input_tensor_by_name(one, "X").shape()[1] for one in requests)
        answers = [utils.InferenceResponse([utils.Tensor(
            "count", np.full((1, 1), len(requests), np.int32))]) for _ in requests]
        with self.record.open("a") as file:
            print(repr(begun), *(one.request_id() for one in requests), file=file)
        time.sleep(max(0.0, begun + self.times_s[len(requests) - 1][longest - 1]
                       - time.monotonic()))
        return answers
