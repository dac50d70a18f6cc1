"""How many workers when: scaling policies, the rules that people run, and what both deliver.

May import: no other room.
"""
