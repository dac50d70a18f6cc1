"""Generators of source code in C and Go with the tables and the lookup of policies."""
