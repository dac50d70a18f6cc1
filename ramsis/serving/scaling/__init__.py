"""Scaling policies in a server.

``fleet`` holds the policies for each number of workers, for the server. ``workers`` starts and
stops the server's workers.
"""
