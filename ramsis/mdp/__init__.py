"""Markov decision problems in general: sparse models, solvers, certificates of the results."""
