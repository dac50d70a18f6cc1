"""Fig. 11: maximal and variable batching at constant loads, for three SLOs.

python scripts/fig11.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig11")
