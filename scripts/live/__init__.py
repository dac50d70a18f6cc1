"""Live runs on this machine: models, policies of other schemes, servers, and comparisons."""
