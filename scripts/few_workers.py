"""Policies and greedy with few workers.

python scripts/few_workers.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("few_workers")
