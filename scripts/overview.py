"""The figure of README and of the documentation's first page: accuracy against load.

Policies, two published schedulers and the bound that no scheduler passes with one model per
request, on the shipped profile `digits-cpu`. Run from the repository's root:
`python scripts/overview.py`.
"""

from __future__ import annotations

from study import answer_of, parser_of

from ramsis.report.chart import Series
from ramsis.report.figure import Panel, PanelRow, plot_panels

LOADS = "400,800,1200,1600,2400,3200,4800,6400,8000"
SCHEMES = {"central-queue": "ramsis, common queue", "round-robin": "ramsis, a queue each",
           "jellyfish-plus": "Jellyfish+", "model-switching": "ModelSwitching"}
COMMAND = ["simulate", "--profiles", "digits-cpu", "--slo-ms", "25", "--workers", "4", "--load",
           LOADS, "--seeds", "3", "--duration-s", "20",
           *(word for one in SCHEMES for word in ("--scheduler", one))]


def main() -> None:
    """Draw the figure."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", default="docs/overview.svg", help="the figure")
    out = parser.parse_args().out
    found = answer_of(*COMMAND)["rows"]
    bound = {row["load_qps"]: row["upper_bound"] for row in found}
    lines = [Series("bound (one model per request)", list(bound), list(bound.values()),
                  ref=True)]
    for scheduler, words in SCHEMES.items():
        own = [row for row in found if row["scheduler"] == scheduler]
        lines.append(Series(words, [row["load_qps"] for row in own],
                          [row["effective_accuracy"] for row in own]))
    plot_panels([PanelRow("effective accuracy", [Panel(
        "digits, 4 workers, SLO 25 ms", lines)], 1.4)], out, "load (requests/s)")
    for row in found:
        print(f"{row['scheduler']:16} {row['load_qps']:6g} {row['effective_accuracy']:.4f} "
              f"{row['violation_rate']:.4%} {row['upper_bound']:.4f}")


if __name__ == "__main__":
    main()
