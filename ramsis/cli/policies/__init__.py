"""Commands about policy files: generate, show, analyse, verify and export them."""
