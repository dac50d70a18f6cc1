"""Placement of models on workers: which worker type holds which variants, at which batch sizes.

Takes tables of expected accuracy (``ramsis.value-table/1``) and worker descriptions; imports
nothing that computes policies.
"""
