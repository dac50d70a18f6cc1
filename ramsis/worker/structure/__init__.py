"""The problem without a matrix: slack nodes, first passages, and exact values on them.

A backup of this form costs |S|·|A|·D, where the written-out rows cost |S|². The room imports
``ramsis.worker.problem`` only.
"""

from __future__ import annotations

from ramsis.worker.structure.structured import StructuredMDP, build_structured

__all__ = ["StructuredMDP", "build_structured"]
