"""Serve models of digits-cpu for ten seconds, and compare with the promise.

    python -m pip install -e '.[measure,serve]'
    python scripts/serve_demo.py

Trains some of digits-cpu's support vector machines (kept in --models for the next time), measures
them here, alone and through a server, makes a policy for 60 % of the capacity, and starts
`ramsis serve` with one worker. Then `ramsis load` sends it images of held-out digits for ten
seconds. Printed are the accuracy of the answers, the violations as the client saw them, and what
the policy promised of both.
"""

from __future__ import annotations

from pathlib import Path

from fidelity import Case, Plan
from live.models import prepared
from study import parser_of, say

from ramsis.errors import InfeasibleError

PLAN = Plan((3200, 6400), 100, (0.6,), 10.0, 1, 2.0, 0)


def main() -> None:
    """Prepare, serve, and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--models", type=Path, default=Path("build/serve-demo"),
                        help="folder that keeps the models")
    parser.add_argument("--slo-ms", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=PLAN.duration_s)
    options = parser.parse_args()
    case = Case(prepared(options.models, PLAN.sizes, PLAN.samples), 1, options.slo_ms, PLAN)
    share = PLAN.shares[0]
    try:
        known = case.known(share * case.fleet(case.alone).capacity_qps)
        load_qps = share * case.fleet(known).capacity_qps
        policy = case.policies(load_qps, known)["central-queue"]
    except InfeasibleError as error:
        say(f"this machine is too busy for an SLO of {options.slo_ms:g} ms: {error}; "
            "try --slo-ms 200")
        raise SystemExit(1) from error
    say(f"serving {options.seconds:g} s at {load_qps:.0f} queries/s, SLO {options.slo_ms:g} ms")
    row = case.live(policy, load_qps, options.seconds, 0, known.network_ms).row
    promised = policy.expectations
    print(f"{'':20} {'promised':>10} {'measured':>10}")
    for name, promise, measured in (
        ("accuracy", promised.accuracy, row["accuracy"]),
        ("violations", promised.violation_rate, row["violation_rate"]),
        ("effective accuracy", promised.effective_accuracy, row["effective_accuracy"]),
    ):
        print(f"{name:20} {promise:10.4f} {measured:10.4f}")
    print(f"{row['requests']} requests; models: " + ", ".join(
        f"{name} {share:.0%}" for name, share in row["model_share"].items()))


if __name__ == "__main__":
    main()
