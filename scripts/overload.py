"""Traces whose peaks pass the capacity, by both rules for late queries.

python scripts/overload.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("overload")
