"""Schedulers of a thesis on Kubernetes clusters: inference in phases, and autoscaling."""
