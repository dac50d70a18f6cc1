"""The evaluation of the RAMSIS paper (Mendoza et al., EuroSys '24, §7) on any profile set.

Each figure and table is an entry in :mod:`evaluation.experiments`; ``scripts/evaluate.py`` makes
those that are named. ``docs/evaluation.md`` has the commands and the results.
"""
