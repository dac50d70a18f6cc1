"""An ONNX model in Triton's Python backend; `live.peers` writes its settings beside it."""

import json
import os

import numpy as np
import onnxruntime
import triton_python_backend_utils as utils


class TritonPythonModel:
    """One instance, on one thread."""

    def initialize(self, args):
        """Load the model, and keep to a core if there is one for it."""
        config = json.loads(args["model_config"])
        given = {name: one["string_value"] for name, one in config["parameters"].items()}
        if given["core"]:
            os.sched_setaffinity(0, {int(given["core"])})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(given["file"], options)

    def execute(self, requests):
        """Run all requests of Triton's batch as one."""
        parts = [utils.get_input_tensor_by_name(one, "X").as_numpy() for one in requests]
        label = self.session.run(["label"], {"X": np.concatenate(parts)})[0].reshape(-1, 1)
        ends = np.cumsum([len(part) for part in parts])[:-1]
        return [utils.InferenceResponse([utils.Tensor("label", rows)])
                for rows in np.split(label, ends)]
