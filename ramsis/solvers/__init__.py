"""Solvers of Markov decision problems; every result carries its certificate."""
