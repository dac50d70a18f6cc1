"""What changes while a server serves: calibrated profiles, new policies, a folder that is watched.

Stands above the server, which it starts, stops or gives new policies.
"""
