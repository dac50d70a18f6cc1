"""Table 3: violations on a trace (from the cells of Fig. 5).

python scripts/table3.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("table3")
