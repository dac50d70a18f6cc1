"""Files for other servers: policies as C or Go, configurations of Ray Serve and Triton.

Nothing here serves, and no server imports it.
"""
