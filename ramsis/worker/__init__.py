"""The decision problem of a station of one worker, and its solvers."""
