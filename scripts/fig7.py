"""Fig. 7: promise and simulation of policies with 40, 60 and 80 workers.

python scripts/fig7.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig7")
