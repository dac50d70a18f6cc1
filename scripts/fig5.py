"""Fig. 5: accuracy and violations on a trace, by number of workers, for three SLOs.

python scripts/fig5.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig5")
