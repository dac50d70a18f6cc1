"""A load generator for any server of the Open Inference Protocol.

It speaks HTTP as any other client does, so it imports nothing of the server but the data types of
the protocol.
"""
