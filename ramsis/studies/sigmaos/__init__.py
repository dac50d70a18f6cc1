"""Schedulers of a thesis on σOS: serving many models in a serverless system."""
