"""Options that several commands share, and parameter types that parse to typed objects."""
