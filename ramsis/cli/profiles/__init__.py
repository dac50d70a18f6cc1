"""``ramsis profile``: look at profile files, import, measure and draw them."""
