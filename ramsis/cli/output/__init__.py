"""What commands print: rows for people and programs, levels of policy sets, decision tables."""
