"""Make figures and tables of the paper's evaluation, and of fleets, on any profile set.

    python scripts/evaluate.py fig5 --profiles NAME [--quick]
    python scripts/evaluate.py fleets fleet_promises robustness --profiles image-cpu text-cpu \
        --docs docs/results

``python scripts/evaluate.py --help`` lists them. Results in --out are reused while the version of
the program is the same: after a change of how policies are made, remove that folder.
"""

from __future__ import annotations

from evaluation.command import main

if __name__ == "__main__":
    main()
