"""Load generator for any server of the Open Inference Protocol.

It is a plain HTTP client, and imports only the protocol's data types from the server.
"""
