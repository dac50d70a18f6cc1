"""A worker replayed by itself has the figures of all that requests reach in turn."""

from dataclasses import replace

import pytest

from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from ramsis.synthesis.replayed import as_stated_by
from ramsis.synthesis.simulated import measured, one_worker
from ramsis.verify.replay import figure_of, played
from tests.slow import slow_after
from tests.synthesis import samples
from tests.verify.mutations import failures

LOAD_QPS, WORKERS = 5137.0, 29


def made(profile: ProfileSet, load_qps: float = LOAD_QPS, **changes: object) -> Policy:
    return generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=83.0, workers=WORKERS, max_queue=6, **changes))


@pytest.fixture(scope="module", params=slow_after(1, [0.85, 0.5, 1.0]))
def policy(request):
    return made(samples.tiny_profile(), request.param * LOAD_QPS)


def test_its_figures_are_those_of_all_workers(policy):
    assert policy.replay.workers == 1
    of_all = played(policy, queries=400_000, runs=8, seed=31)
    for name, half_width in policy.replay.half_widths.items():
        if name in of_all and ".p" not in name:
            other = of_all[name]
            allowed = 2.0 * (half_width + (other.half_width or 0.0)) + 1e-3 * abs(other.mean)
            assert figure_of(policy.expectations, name) == pytest.approx(other.mean, abs=allowed)


def test_as_many_requests_tell_more(policy):
    widths = [measured(policy, queries=40_000, runs=8, seed=7, workers=workers)[1].half_widths
              for workers in (1, None)]
    for name in ("response_mean_ms", "queue_length.mean", "effective_accuracy"):
        assert widths[0][name] <= widths[1][name] + 1e-12


@pytest.mark.parametrize("changes", [
    {"dispatch": "central-queue"}, {"dispatch": "shortest-queue"},
    {"arrivals": {"process": "negative-binomial", "dispersion": 3.0}}])
def test_there_is_none_where_workers_are_not_alike(policy, changes):
    assert one_worker(policy) is not None
    assert one_worker(replace(policy, **changes)) is None


def test_files_whose_replay_is_of_all_workers_verify(policy, tmp_path):
    """And a file that is only said to be one does not."""
    figures, found = measured(policy, queries=200_000, runs=8, seed=policy.replay.seed)
    assert found.workers is None
    before = replace(as_stated_by(policy, figures, found), headroom=None)
    assert "workers" not in before.to_document()["replay"]
    assert not [claim for claim in failures(before, tmp_path) if "headroom" not in claim
                and ("replay" in claim or "simulator of its own" in claim)]
    document = policy.to_document()
    del document["replay"]["workers"]
    assert failures(document, tmp_path)
