"""Request logs of other programs: recognition of the program, and meanings of the columns.

:mod:`~ramsis.logs.kinds` is the table of layouts, :mod:`~ramsis.logs.frames` reads a file into
columns of texts, and :mod:`~ramsis.logs.table` turns these into times and outcomes of requests.

May import: no other room.
"""
