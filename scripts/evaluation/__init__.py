"""The evaluation of the RAMSIS paper (Mendoza et al., EuroSys '24, §7) on any profile set.

Each figure and table is an entry in :mod:`evaluation.experiments`, run by a script of its name in
the folder above. ``docs/evaluation.md`` has the commands and the results.
"""
