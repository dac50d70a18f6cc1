"""``python -m ramsis`` and the command ``ramsis``: the command line in a process of its own."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # ``-m`` puts the current folder first. Numba imports and runs extensions of any package that
    # it finds, so the folder is removed, or moved behind the libraries if this package lies in it.
    here = sys.path.pop(0)
    if here == os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
        sys.path.append(here)

import signal
from types import FrameType

_LOOKS_AGAIN_S = 0.02


def main() -> None:
    """Run the command line; Ctrl-C exits with 130 from start-up on, and is ignored at the end.

    The alarm repeats a Ctrl-C that came while a module was imported (:func:`_interrupted`).
    """
    signal.signal(signal.SIGINT, _interrupted)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        from ramsis.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python still has threads and files to end
        signal.setitimer(signal.ITIMER_REAL, 0)
        # Python ends by the signal itself, whatever the exit code, when the last code run by
        # exec(), as that of a dataclass, was interrupted.
        exec("")


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, only after the import has ended.

    An extension module that is interrupted while it initialises may raise an ImportError instead,
    or continue as if nothing had happened.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            signal.setitimer(signal.ITIMER_REAL, _LOOKS_AGAIN_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
