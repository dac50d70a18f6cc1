"""``check``: what is odd is named, and nothing else."""

from __future__ import annotations

from ramsis.profiles import BatchProfile, Finding, ModelProfile
from ramsis.profiles import check_profile as check
from tests.profiles.samples import model, profile_set


def kinds(findings: list[Finding]) -> list[tuple[str, str, int | None]]:
    return [(item.kind, item.model, item.batch) for item in findings]


def test_a_clean_set_has_no_findings():
    clean = BatchProfile(1, n=100, p95_ms=10.0)
    two = BatchProfile.from_samples(2, [15.0 + i / 100 for i in range(200)])
    assert check(profile_set(ModelProfile("a", 0.5, (clean, two)),
                             model("b", 0.6, {1: 20.0, 2: 30.0}))) == []


def test_few_samples_are_named():
    few = ModelProfile("a", 0.5, (BatchProfile(1, n=99, p95_ms=10.0),))
    findings = check(profile_set(few))
    assert kinds(findings) == [("few-samples", "a", 1)]
    assert str(findings[0]).startswith("a, batch 1: 99 samples")


def test_a_batch_slower_than_a_larger_one_is_named():
    findings = check(profile_set(model("a", 0.5, {1: 10.0, 2: 14.0, 3: 12.0})))
    assert kinds(findings) == [("not-monotone", "a", 2)]
    assert "batch 3" in findings[0].message


def test_an_outlier_is_named_and_its_neighbours_are_not():
    line = {batch: 10.0 * batch for batch in range(1, 9)}
    assert kinds(check(profile_set(model("a", 0.5, {**line, 5: 500.0})))) == [
        ("not-monotone", "a", 5), ("outlier", "a", 5)
    ]
    assert kinds(check(profile_set(model("a", 0.5, {**line, 8: 500.0})))) == [
        ("outlier", "a", 8)
    ]


def test_an_outlying_batch_1_is_named():
    line = {batch: 10.0 * batch for batch in range(1, 9)}
    assert ("outlier", "a", 1) in kinds(check(profile_set(model("a", 0.5, {**line, 1: 300.0}))))


def test_a_p95_far_from_the_sketch_is_named():
    far = BatchProfile(1, p95_ms=20.0, quantiles_ms=(9.0, 10.0, 11.0))
    assert kinds(check(profile_set(ModelProfile("a", 0.5, (far,))))) == [("sketch", "a", 1)]


def test_gaps_in_the_batch_sizes_are_named():
    findings = check(profile_set(model("a", 0.5, {1: 10.0, 2: 15.0, 5: 30.0})))
    assert kinds(findings) == [("gap", "a", None)]
    assert findings[0].message.endswith(": 3, 4")


def test_a_dominated_model_is_named_with_one_that_dominates_it():
    findings = check(profile_set(model("slow", 0.5, {1: 20.0}), model("quick", 0.6, {1: 10.0})))
    assert kinds(findings) == [("dominated", "slow", None)]
    assert findings[0].message.startswith("quick ")


def test_a_missing_p95_is_named_and_other_checks_take_what_there_is():
    means = tuple(BatchProfile(batch, mean_ms=value)
                  for batch, value in ((1, 10.0), (2, 14.0), (3, 12.0)))
    findings = check(profile_set(ModelProfile("a", 0.5, means)))
    assert kinds(findings) == [("not-monotone", "a", 2), *(("no-p95", "a", b) for b in (1, 2, 3))]
    assert "mean 14 ms" in findings[0].message


def test_models_without_a_common_statistic_are_not_compared():
    one = ModelProfile("a", 0.5, (BatchProfile(1, mean_ms=10.0),))
    other = ModelProfile("b", 0.4, (BatchProfile(1, p99_ms=20.0),))
    assert kinds(check(profile_set(one, other))) == [("no-p95", "a", 1), ("no-p95", "b", 1)]
