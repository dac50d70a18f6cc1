"""Worker processes: their life as the front end keeps it, and what runs in them.

``pool`` starts, watches and restarts them; ``process`` is one process, whose death the kernel
reports; ``worker`` is what it runs; ``messages`` and ``memory`` are what both sides share.
"""
