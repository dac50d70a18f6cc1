"""Request logs of other programs: recognition of the program, and meanings of the columns.

:mod:`~ramsis.logs.kinds` lists the layouts, and :mod:`~ramsis.logs.dates` the forms of dates.
:mod:`~ramsis.logs.frames` reads a file into columns of text, and :mod:`~ramsis.logs.table`
converts these to times and outcomes of requests.

May import: no other room.
"""
