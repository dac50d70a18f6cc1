"""GPUs that models share: profiles, kernel metrics, interference."""
