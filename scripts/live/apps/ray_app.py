"""ONNX models under Ray Serve, which forms the batches; speaks the Open Inference Protocol.

python ray_app.py PORT WORKERS CORE|none LARGEST_BATCH WAIT_S NAME=FILE...
"""

import json
import os
import signal
import sys

import numpy as np
import onnxruntime
import ray
from ray import serve
from starlette.responses import JSONResponse

PORT, WORKERS, CORE, LARGEST, WAIT_S, *MODELS = sys.argv[1:]


@serve.deployment(num_replicas=int(WORKERS), max_ongoing_requests=1024,
                  ray_actor_options={"num_cpus": 0})
class Model:
    """One model, on one thread."""

    def __init__(self, name, file, core):
        if core != "none":
            os.sched_setaffinity(0, {int(core)})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.name, self.session = name, onnxruntime.InferenceSession(file, options)

    @serve.batch(max_batch_size=int(LARGEST), batch_wait_timeout_s=float(WAIT_S))
    async def label(self, images):
        """Run a batch."""
        return self.session.run(["label"], {"X": np.stack(images)})[0].tolist()

    async def __call__(self, request):
        """Answer inference requests, and what clients ask about the model."""
        path = request.url.path
        if path.endswith("/infer"):
            body = await request.body()
            start = int(request.headers["inference-header-content-length"])
            label = await self.label(np.frombuffer(body, np.float32, offset=start))
            return JSONResponse({"model_name": self.name, "outputs": [
                {"name": "label", "datatype": "INT64", "shape": [1], "data": [label]}]})
        if path.endswith(self.name):
            return JSONResponse({
                "name": self.name, "platform": "onnx", "versions": ["1"],
                "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4096]}],
                "outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}]})
        return JSONResponse({"name": "ray", "version": ray.__version__,
                             "extensions": ["binary_tensor_data"]})


ray.init(num_cpus=int(WORKERS) + 2, include_dashboard=False, log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(PORT)})
for one in MODELS:
    name, file = one.split("=")
    serve.run(Model.bind(name, file, CORE), name=name, route_prefix=f"/{name}")
print(json.dumps({"ready": MODELS}), flush=True)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
serve.shutdown()
ray.shutdown()
