"""What others run: policies as C or Go, and configurations of Ray Serve and Triton.

Nothing here serves, and no server imports it.
"""
