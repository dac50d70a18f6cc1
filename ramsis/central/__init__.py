"""The decision problem of a station of several workers that share one central queue.

May import: cluster, runtime.
"""
