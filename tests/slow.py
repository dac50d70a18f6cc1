"""Which cases of a test run each time, and which with the slow ones."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest


def slow_after(count: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of ``parametrize``, of which all but the first so many are slow.

    A case of several arguments is a plain tuple.
    """
    rest = iter(cases)
    first = list(islice(rest, count))
    return first + [pytest.param(*(case if type(case) is tuple else (case,)),
                                 marks=pytest.mark.slow) for case in rest]
