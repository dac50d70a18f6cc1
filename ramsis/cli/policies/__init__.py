"""Commands about policy files: make, look at, analyse, verify and export them."""
