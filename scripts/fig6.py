"""Fig. 6: accuracy and violations at constant loads, for three SLOs.

python scripts/fig6.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig6")
