"""Lines that promises have to hold, each a list of settings that are made and simulated.

``scripts/promises.py`` runs them; ``docs/evaluation.md`` has the results.
"""
