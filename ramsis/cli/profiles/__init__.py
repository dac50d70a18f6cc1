"""``ramsis profile``: show, check, import, measure and plot profile files."""
