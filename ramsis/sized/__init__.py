"""Requests with a size: batches whose time depends on the sizes of their members.

May import: arrivals, profiles.
"""

from __future__ import annotations

from ramsis.lazy_names import names_from
from ramsis.sized.problem import BatchTimes, SizedProblem

__all__ = ["BatchTimes", "SizedProblem"]

__getattr__, __dir__ = names_from(globals())
