"""Output of commands: tables or JSON of rows, levels of policy sets, decision tables."""
