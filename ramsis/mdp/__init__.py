"""Markov decision problems: state space, grids, actions, transitions."""
