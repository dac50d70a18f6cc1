"""What identifies the inputs of policies with cascades."""

from dataclasses import replace

from ramsis.cluster import Cluster
from ramsis.profiles import ProfileSet
from ramsis.profiles.confidences import Confidences
from ramsis.sweep.jobs import PolicyJob, SweepCluster
from ramsis.synthesis.settings import SynthesisSettings, inputs_of
from tests.cascades.samples import drawn, profile_with_confidences

ONE_MODEL = SynthesisSettings(slo_ms=60.0, workers=4, dispatch="central-queue")
CASCADES = replace(ONE_MODEL, cascades=True)


def profiles() -> tuple[ProfileSet, ProfileSet]:
    """A profile with confidences, and with others."""
    profile = profile_with_confidences(2_000)
    return profile, replace(profile, confidences=Confidences.of(drawn(3_000)))


def test_policies_with_cascades_are_made_from_the_confidences_too():
    first, other = profiles()
    assert inputs_of(first, CASCADES) != inputs_of(other, CASCADES)
    assert inputs_of(first, ONE_MODEL) == inputs_of(other, ONE_MODEL)
    without = replace(first, confidences=None)
    assert inputs_of(without, CASCADES).profile == without.fingerprint


def test_sweeps_keep_results_by_the_confidences(tmp_path):
    paths = {PolicyJob(tmp_path, SweepCluster.of(Cluster.of(profile, workers=4, slo_ms=60.0)),
                       9_600.0, CASCADES).path for profile in profiles()}
    assert len(paths) == 2
