"""The problem with every transition written out, for checks and for general solvers.

The room imports ``ramsis.worker.problem`` only. It shares no code with ``ramsis.worker.structure``
beyond that, so that one can be held against the other.
"""

from __future__ import annotations

from ramsis.worker.explicit.rows import ExplicitWorkerMDP, build_explicit

__all__ = ["ExplicitWorkerMDP", "build_explicit"]
