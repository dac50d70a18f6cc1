"""What is known of GPUs that models share: profiles, kernels, interference."""
