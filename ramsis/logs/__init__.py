"""Request logs of other programs: which program wrote a file, and what its columns hold.

:mod:`~ramsis.logs.kinds` is the table of layouts, :mod:`~ramsis.logs.frames` makes columns of
texts of a file, and :mod:`~ramsis.logs.table` turns these into times and outcomes of requests.

May import: no other room.
"""
