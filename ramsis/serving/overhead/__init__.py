"""The overhead: what serving takes besides the model, measured when a server starts and runs."""
