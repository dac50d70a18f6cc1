"""Fleet policies beside other schemes, over loads, workers and SLOs; promises; robustness.

python scripts/fleets.py [--profiles NAME …] [--quick] [--docs docs/theory]
"""

from __future__ import annotations

from evaluation.command import run

_DESCRIPTION = """\
Make the figures and tables on fleet policies of docs/theory.md: fleets (over loads, workers and
SLOs), fleet_promises, and robustness, for both image-cpu and text-cpu. One command makes them
all anew, in less than ten minutes on one core:

  python scripts/fleets.py --docs docs/theory

Results in --out are used again while the program's version is the same: remove that folder, or
name another, after a change of how policies are made. The tables are printed for the page.
"""

if __name__ == "__main__":
    run("fleets", "fleet_promises", "robustness", description=_DESCRIPTION,
        profiles=("image-cpu", "text-cpu"))
