"""Serving by policies: request logs, load, audits, and servers."""
