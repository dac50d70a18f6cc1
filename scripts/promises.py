"""Do promises hold? Settings by the dozen, each promise against simulation.

python scripts/promises.py LINE [--out FILE] [--only N] [--match TEXT] [--seed S] [--quick]

LINE is one of

- headroom: what policies by default give up, and what that saves when service takes longer;
- random: 300 settings drawn at random, of all kinds of dispatch and batching;
- few-workers: central queues of one to four workers beside per-worker policies and greedy;
- near-capacity: where the models are at their worst; ``--reference DIR`` adds two settings of the
  public artifact's profiles, ``ramsis_image_profiles.csv`` in DIR;
- figures: every measured figure of 60 promises, against a simulator that shares nothing;
- intervals: errors of 30 promises near the capacity, beside their half-widths.

Results are appended to a file of JSON lines, and what is there is not computed again. Misses and
a summary are printed at the end; exit code 0 says that the line holds, 1 that it does not.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from acceptance.command import main

    sys.exit(main(sys.argv[1:], __doc__))
