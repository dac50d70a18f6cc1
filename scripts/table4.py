"""Table 4: violations at constant loads (from the cells of Fig. 6).

python scripts/table4.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("table4")
