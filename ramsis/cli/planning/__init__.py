"""Planning commands: numbers of workers, bounds and placements."""
