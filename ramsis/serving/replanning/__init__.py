"""Changes of a server while it serves: calibrated profiles, new policies, a watched folder.

These modules use the server: they start and stop it, and give it new policies.
"""
