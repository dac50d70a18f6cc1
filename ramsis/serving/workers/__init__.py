"""Worker processes of the server.

``pool`` starts, watches and restarts them; ``process`` is the front end's handle of one process;
``worker`` is the program that it runs; ``messages`` and ``memory`` are shared by both sides.
"""
