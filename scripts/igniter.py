"""iGniter's plans beside what the thesis prints of them, by set-ups of its parameters.

python scripts/igniter.py --json igniter.json

The thesis prints neither iGniter's coefficients nor its goodput. It prints how many GPUs the plans
take: 5 for five vision models at 500 requests per second each and an SLO of 200 ms; 6 for a mix of
vision and language models at 300 and 300 ms; 2, 3, 8, 8 and 8 for the vision models at 1000 to
5000 requests per second in all and 350 ms, on nodes of 8 GPUs. Of the first plan it prints the
batches of efficientnet_b7 (9, 5, 5 and 5) and its neighbours: alexnet beside vgg19, resnet50
beside densenet121 (figure 6.8). On six GPUs the mix is near its ideal (figure 6.14), and no vision
model reaches its own (figure 6.9).

A row for each set-up: its plans, and both workloads played on six GPUs at the rates that the
thesis' clients reached, 433.34 of 500 and 274.6 of 300 requests per second.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from study import parser_of

from ramsis.errors import RamsisError
from ramsis.files import canonical_json, write_atomic
from ramsis.studies.sharing import Igniter, SharedModel, gpus_of, models_of
from ramsis.studies.sharing.gpu.interference import THESIS
from ramsis.studies.sharing.gpu.profile import SharingProfile, read_sharing_profile
from ramsis.studies.sharing.gpu.shared_gpu import NetworkTime, RouterSettings
from ramsis.studies.sharing.igniter import PowerTerm
from ramsis.studies.sharing.play import SharedCluster, measure_sharing, play

VISION = ("alexnet", "densenet121", "efficientnet_b7", "resnet50", "vgg19")
MIX = ("resnet50", "mobilenet_v2", "bert", "gpt2")
TOTALS_RPS = (1000.0, 2000.0, 3000.0, 4000.0, 5000.0)
PRINTED: dict[str, Any] = {
    "setup": "printed", "gpus_vision": 5, "gpus_mix": 6, "gpus_350_ms": [2, 3, 8, 8, 8],
    "batches": [9, 5, 5, 5], "vgg19_beside_alexnet": True, "densenet121_beside_resnet50": True,
    "mix_rps": None, "vision_rps": None, "short": len(VISION)}
# The published program, and the changes to it that come nearest to the thesis' figures: GPUs of
# its own serve efficientnet_b7 in batches of 5 and take 84 % of what they can, not 90; power costs
# nothing, and time is as share^-0.6. The engine has the exponent of the plan.
SETUPS: dict[str, dict[str, Any]] = {
    "published": {},
    "thesis": {"rate_share": 0.84, "largest_batches": {"efficientnet_b7": 5}, "scaling": 0.6,
               "power": PowerTerm(per_watt=0.0)},
}
_GPUS = 6
_SENT_RPS = {"vision": 433.34, "mix": 274.6}
_NEAR = 0.99  # share of its rate from which a model counts as near its ideal
_SEEDS = range(5)
_MANY = 1000


def row_of(
    profile: SharingProfile, name: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a set-up makes of the printed cases."""
    policy = Igniter(**parameters)
    kind = profile.gpu_types()[0]

    def planned(models: Sequence[SharedModel]) -> tuple[list[Any], int]:
        return policy.everything(models, gpus_of(_MANY, kind))

    def in_time(models: Sequence[SharedModel], sent_rps: float) -> dict[str, float]:
        """Return the goodput of each model on six GPUs, in the mean of the runs."""
        gpus = gpus_of(_GPUS, kind)
        router = RouterSettings(networks=dict.fromkeys(
            ("bert", "gpt2"), NetworkTime(bytes_per_request=8192)))
        cluster = SharedCluster(tuple(replace(model, rate_rps=sent_rps) for model in models),
                                gpus, router, replace(THESIS, share_exponent=policy.scaling))
        runs = [measure_sharing(play(cluster, policy(models, gpus), seed)) for seed in _SEEDS]
        return {model.name: statistics.fmean(run.models[i].goodput_rps for run in runs)
                for i, model in enumerate(models)}

    vision = models_of(profile, dict.fromkeys(VISION, 500.0), 200.0)
    mix = models_of(profile, dict.fromkeys(MIX, 300.0), 300.0)
    replicas, gpus_vision = planned(vision)
    held: dict[str, set[str]] = {}
    for replica in replicas:
        held.setdefault(replica.gpu, set()).add(replica.model)
    vision_rps, mix_rps = (in_time(models, _SENT_RPS[key])
                           for key, models in (("vision", vision), ("mix", mix)))
    return {
        "setup": name,
        "gpus_vision": gpus_vision, "gpus_mix": planned(mix)[1],
        "gpus_350_ms": [planned(models_of(profile, dict.fromkeys(VISION, total / len(VISION)),
                                          350.0))[1] for total in TOTALS_RPS],
        "batches": sorted((r.batch for r in replicas if r.model == "efficientnet_b7"),
                          reverse=True),
        "vgg19_beside_alexnet": any({"vgg19", "alexnet"} <= names for names in held.values()),
        "densenet121_beside_resnet50": any({"densenet121", "resnet50"} <= names
                                           for names in held.values()),
        "mix_rps": mix_rps, "vision_rps": vision_rps,
        "short": sum(rps < _NEAR * _SENT_RPS["vision"] for rps in vision_rps.values())}


def line_of(row: Mapping[str, Any]) -> str:
    """Return a set-up in a line."""
    goodput = "" if row["mix_rps"] is None else (
        f"; on {_GPUS} GPUs the mix {sum(row['mix_rps'].values()):.1f} of "
        f"{len(MIX) * _SENT_RPS['mix']:.1f}, vision {sum(row['vision_rps'].values()):.1f} of "
        f"{len(VISION) * _SENT_RPS['vision']:.1f}")
    return (f"{row['setup']:10s} GPUs: vision {row['gpus_vision']}, mix {row['gpus_mix']}, 350 ms "
            f"{row['gpus_350_ms']}; efficientnet_b7 {row['batches']}; vgg19 beside alexnet "
            f"{row['vgg19_beside_alexnet']}, densenet121 beside resnet50 "
            f"{row['densenet121_beside_resnet50']}{goodput}; {row['short']} vision models short")


def main(argv: Sequence[str] | None = None) -> int:
    """Plan and play each set-up."""
    parser = parser_of(__doc__)
    parser.add_argument("--profile", default="v100", help="CSV file of a sharing profile, or v100")
    parser.add_argument("--json", type=Path, help="file of all rows")
    options = parser.parse_args(argv)
    try:
        profile = read_sharing_profile(options.profile)
        rows = [PRINTED, *(row_of(profile, name, parameters)
                           for name, parameters in SETUPS.items())]
        if options.json is not None:
            write_atomic(options.json, canonical_json({"rows": rows}))
    except RamsisError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(map(line_of, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
