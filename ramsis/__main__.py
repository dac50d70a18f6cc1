"""``python -m ramsis``: the command line."""

from ramsis.cli.main import main

main()
