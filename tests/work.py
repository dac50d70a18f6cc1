"""The work that a call takes, which is the same on machines of any speed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of functions, of Python's and of C's, that a call makes."""
    count = 0

    def told(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(told)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def lines_of(work: Callable[[], object]) -> int:
    """Count the lines of Python that a call runs, each as often as it is run."""
    count = 0

    def told(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return told

    before = sys.gettrace()
    sys.settrace(told)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
