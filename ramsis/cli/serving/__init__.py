"""Commands about running servers and their logs: serve, load, audit."""
