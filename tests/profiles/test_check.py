"""``check``: what is odd is named, and nothing else."""

from typing import Any

import pytest

from ramsis.profiles import BatchProfile, ModelProfile
from ramsis.profiles import check_profile as check
from tests.profiles.samples import model, profile_set

LINE = {batch: 10.0 * batch for batch in range(1, 9)}


def of(*batches: BatchProfile, name: str = "a", accuracy: float = 0.5) -> ModelProfile:
    return ModelProfile(name, accuracy, batches)


CASES: dict[str, tuple[tuple[ModelProfile, ...], list[Any], str]] = {
    "nothing": ((of(BatchProfile(1, n=100, p95_ms=10.0),
                    BatchProfile.from_samples(2, [15.0 + i / 100 for i in range(200)])),
                 model("b", 0.6, {1: 20.0, 2: 30.0})), [], ""),
    "few samples": ((of(BatchProfile(1, n=99, p95_ms=10.0)),), [("few-samples", "a", 1)],
                    "a, batch 1: 99 samples"),
    "a batch slower than a larger one": (
        (model("a", 0.5, {1: 10.0, 2: 14.0, 3: 12.0}),), [("not-monotone", "a", 2)], "batch 3"),
    "an outlier, and not its neighbours": (
        (model("a", 0.5, {**LINE, 5: 500.0}),), [("not-monotone", "a", 5), ("outlier", "a", 5)],
        "is 10 times the 50 ms that the other batch sizes suggest"),
    "an outlier at the end": ((model("a", 0.5, {**LINE, 8: 500.0}),), [("outlier", "a", 8)], ""),
    "an outlying batch 1": ((model("a", 0.5, {**LINE, 1: 300.0}),),
                            [("not-monotone", "a", 1), ("outlier", "a", 1)],
                            "300 ms is above 20 ms of batch 2; it is padded up"),
    "a p95 far from the sketch": (
        (of(BatchProfile(1, p95_ms=20.0, quantiles_ms=(9.0, 10.0, 11.0))),),
        [("sketch", "a", 1)], "p95 20 ms, but 11 ms by quantiles_ms"),
    "gaps": ((model("a", 0.5, {1: 10.0, 2: 15.0, 5: 30.0}),), [("gap", "a", None)], ": 3, 4 ["),
    "a dominated model, with one that dominates it": (
        (model("quick", 0.6, {1: 10.0}), model("slow", 0.5, {1: 20.0})),
        [("dominated", "slow", None)], "slow: quick is as accurate"),
    "no p95, and other checks take what there is": (
        (of(*(BatchProfile(batch, mean_ms=value)
              for batch, value in ((1, 10.0), (2, 14.0), (3, 12.0)))),),
        [("not-monotone", "a", 2), *(("no-p95", "a", batch) for batch in (1, 2, 3))],
        "mean 14 ms"),
    "no common statistic": (
        (of(BatchProfile(1, mean_ms=10.0)),
         of(BatchProfile(1, p99_ms=20.0), name="b", accuracy=0.4)),
        [("no-p95", "a", 1), ("no-p95", "b", 1)], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_odd_is_named_and_nothing_else(case):
    models, expected, words = CASES[case]
    findings = check(profile_set(*models))
    assert [(item.kind, item.model, item.batch) for item in findings] == expected
    assert words in "\n".join(map(str, findings))
