"""Scaling policies while they serve.

What each number of workers plays, which the server knows; and who starts and stops workers, which
stands above the server.
"""
