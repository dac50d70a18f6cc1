"""Central-queue policies beside other schedulers: loads, workers and SLOs; promises; robustness.

python scripts/fleets.py [--profiles NAME …] [--quick] [--docs docs/measurements]
"""

from __future__ import annotations

from evaluation.command import run

_DESCRIPTION = """\
Make the figures and tables on central-queue policies of docs/measurements.md: fleets (over loads,
workers and SLOs), fleet_promises, and robustness, for both image-cpu and text-cpu. One command
makes them all anew, in less than ten minutes on one core:

  python scripts/fleets.py --docs docs/measurements

Results in --out are used again while the version of the program is the same. After a change of
how policies are made, remove that folder or name another. The tables are printed for the page.
"""

if __name__ == "__main__":
    run("fleets", "fleet_promises", "robustness", description=_DESCRIPTION,
        profiles=("image-cpu", "text-cpu"))
