"""An ONNX model as a runtime of MLServer, which forms the batches."""

import os

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class OnnxModel(MLModel):
    """One model, on one thread."""

    async def load(self):
        """Load the model, and keep to a core if there is one for it."""
        extra = self.settings.parameters.extra
        if extra["core"] is not None:
            os.sched_setaffinity(0, {extra["core"]})
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(extra["file"], options)
        return True

    async def predict(self, payload):
        """Run a batch."""
        images = NumpyCodec.decode_input(payload.inputs[0])
        label = self.session.run(["label"], {"X": images})[0].reshape(-1, 1)
        return InferenceResponse(model_name=self.name, model_version="1",
                                 outputs=[NumpyCodec.encode_output("label", label)])
