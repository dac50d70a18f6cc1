"""Source code in other languages that answers as the runtime does: tables and lookup."""
