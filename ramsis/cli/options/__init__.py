"""Words and options of the command line: what several commands take, as typed objects."""
