"""Fig. 10: slack grids, from coarse to fine and model-based.

python scripts/fig10.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig10")
