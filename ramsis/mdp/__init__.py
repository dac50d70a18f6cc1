"""Markov decision problems in general: sparse models, solvers, certificates of the results.

May import: no other room.
"""
