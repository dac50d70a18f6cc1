"""Inside Triton Inference Server: a model of its Python backend."""
