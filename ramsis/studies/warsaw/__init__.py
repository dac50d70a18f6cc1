"""Schedulers of a thesis on Kubernetes clusters, in phases, and scaling by its rule."""
