"""Commands that ask what is needed: workers, bounds, placements."""
