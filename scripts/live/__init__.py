"""Live runs on this machine: models, policies of other schedulers, servers, and comparisons."""
