"""Fig. 8: the measured models, and with models in between.

python scripts/fig8.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("fig8")
