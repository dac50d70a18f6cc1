"""Changes of a server while it serves: calibrated profiles, new policies, a watched folder.

The room stands above the server, which it starts, stops or gives new policies.
"""
