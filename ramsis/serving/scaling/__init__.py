"""Scaling policies while they serve.

``fleet`` has the policies for each number of workers, which the server knows. ``workers`` starts
and stops workers, and stands above the server.
"""
