"""The decision problem of a station of one worker, and its solvers, in four rooms.

``problem`` says what is decided. ``structure`` and ``explicit`` write its transitions in two ways
that know nothing of each other. ``solve`` stands above the three.

May import: arrivals, cluster, mdp, profiles, runtime.
"""
