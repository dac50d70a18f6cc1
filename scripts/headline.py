"""The headline: workers saved at equal accuracy (from the cells of Fig. 5).

python scripts/headline.py --profiles NAME [--quick]
"""

from __future__ import annotations

from evaluation.command import run

if __name__ == "__main__":
    run("headline")
