"""Fig. 12: three models only.

python scripts/fig12.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig12")
