"""Sets with policies for batches that take longer than profiled."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import ramsis
from ramsis import runtime
from ramsis.errors import InfeasibleError, InputFileError, InvalidValueError, OutputError
from ramsis.files import canonical_json, fingerprint
from ramsis.policy import Policy, PolicySet, read_set, validate_set
from ramsis.serving.policies import Expected
from ramsis.sim import ConstantLoad, Policies
from ramsis.synthesis import SynthesisSettings, generate_policy, generate_set
from ramsis.synthesis.simulated import simulated
from tests.runs import simulate_profile
from tests.verify.mutations import failures

PROFILE = ramsis.load_profile("digits-cpu")
SETTINGS = SynthesisSettings(slo_ms=25, workers=4, dispatch="central-queue")
SLOWNESS = (1.0, 1.15, 1.3)
LOAD_QPS = 1600.0


@cache
def made(folder: Path) -> PolicySet[Policy]:
    return generate_set(PROFILE, [LOAD_QPS], SETTINGS.when_slow(*SLOWNESS), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("set") / "policies"
    made(place)
    return place


def test_a_set_has_each_load_at_each_slowness(folder):
    for policies in (made(folder), read_set(folder), validate_set(folder)):
        assert [(level.load_qps, level.slowness) for level in policies.levels] == [
            (LOAD_QPS, slowness) for slowness in SLOWNESS]
        assert all(level.policy.headroom is None for level in policies.levels)
    served = runtime.load_set(folder)
    for slowness, chosen, left in ((0.9, 1.0, 1.0), (1.0, 1.0, 1.0), (1.1, 1.15, 1.0),
                                   (1.3, 1.3, 1.0), (1.56, 1.3, 1.56 / 1.3)):
        choice = served.at(1000.0, slowness=slowness)
        assert (choice.level.slowness, choice.slowness) == (chosen, left)
        assert choice.selector.table.slowness == chosen


def test_a_policy_for_a_slowness_is_the_one_for_the_longer_times(folder):
    policy = read_set(folder).at(LOAD_QPS, slowness=1.3).policy
    own = generate_policy(PROFILE.slower(1.3), LOAD_QPS, replace(SETTINGS, headroom=0.0))
    assert policy.slowness == 1.3
    assert own.slowness == 1.0
    for name in ("codes", "actions", "slack_ms", "service_ms"):
        assert np.array_equal(getattr(policy, name), getattr(own, name)), name
    assert policy.expectations == own.expectations


def test_its_promise_is_kept_when_service_takes_so_long(folder):
    for slowness in SLOWNESS:
        policy = read_set(folder).at(LOAD_QPS, slowness=slowness).policy
        result = simulate_profile(
            PROFILE, Policies(read_set(folder)), ConstantLoad(LOAD_QPS, 100_000), workers=4,
            slo_ms=25, slowness=slowness, seeds=(5, 6, 7))
        found, half = result.estimate("effective_accuracy"), 1e-3
        assert found.mean == pytest.approx(policy.expectations.effective_accuracy, abs=half)
        assert result.violation_rate == pytest.approx(policy.expectations.violation_rate, abs=5e-4)


def test_a_slowness_below_the_profiles_has_a_promise_too():
    (fast,) = SETTINGS.when_slow(0.8)
    policy = generate_policy(PROFILE, 6400.0, fast)
    found = simulated(policy, queries=200_000, runs=4, seed=9)
    assert found.effective_accuracy == pytest.approx(
        policy.expectations.effective_accuracy, abs=1e-3)


def test_verify_derives_the_claims_of_each_and_finds_another_slowness(folder, tmp_path):
    policy = read_set(folder).at(LOAD_QPS, slowness=1.15).policy
    for slowness, failing in ((1.15, list[str]()), (1.3, ["settings: slowness"])):
        assert failures({**policy.to_document(), "slowness": slowness}, tmp_path) == failing


def changed(folder: Path, tmp_path: Path, **slowness: Any) -> Path:
    """The set with another slowness in the manifest (``level``) or in the policy (``file``)."""
    copy = copytree(folder, tmp_path / "copy")
    manifest = json.loads((copy / "manifest.json").read_text())
    level = manifest["levels"][-1]
    (station,) = level["stations"]
    if "file" in slowness:
        path = copy / station["file"]
        text = canonical_json({**json.loads(path.read_text()), "slowness": slowness["file"]})
        path.write_text(text)
        station["fingerprint"] = fingerprint(text)
    if "level" in slowness:
        level["slowness"] = slowness["level"]
    (copy / "manifest.json").write_text(canonical_json(manifest))
    return copy


@pytest.mark.parametrize(("slowness", "message"), [
    ({"level": 1.4}, "slowness: the policy file says otherwise: got 1.4"),
    ({"file": 1.4}, "slowness: the policy file says otherwise: got 1.3"),
    ({"level": 0}, "slowness: not positive|slowness: not a"),
    ({"level": 1.15, "file": 1.15}, "two policies for one load"),
])
def test_a_slowness_that_does_not_fit_is_refused(folder, tmp_path, slowness, message):
    with pytest.raises(InputFileError, match=message):
        read_set(changed(folder, tmp_path, **slowness))


def test_a_set_is_extended_by_another_slowness(folder, tmp_path):
    copy = copytree(folder, tmp_path / "copy")
    generate_set(PROFILE, [LOAD_QPS], SETTINGS.when_slow(1.5), copy)
    assert [level.slowness for level in read_set(copy).levels] == [*SLOWNESS, 1.5]
    with pytest.raises(OutputError, match="other settings"):
        generate_set(PROFILE, [LOAD_QPS], SETTINGS, copy)


def test_settings_that_differ_in_more_are_refused(tmp_path):
    for wrong in ([], [SETTINGS, replace(SETTINGS, headroom=0.0)]):
        with pytest.raises(InvalidValueError, match="differ in slowness alone"):
            generate_set(PROFILE, [LOAD_QPS], wrong, tmp_path / "set")
    with pytest.raises(InvalidValueError, match="slowness"):
        SETTINGS.when_slow(0.0)
    with pytest.raises(InfeasibleError):  # before anything is written
        generate_set(PROFILE, [LOAD_QPS], SETTINGS.when_slow(1.0, 1e6), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_a_server_counts_on_times_as_profiled(folder):
    """Else the slowness would be measured from the policies that it chose, and go back to 1."""
    levels = read_set(folder).levels
    usual, slow = Expected(levels[0]), Expected(levels[-1])
    name = levels[0].policy.models[0].name
    assert slow.service_ms(name, 1) == pytest.approx(usual.service_ms(name, 1), rel=1e-9)
    assert slow.stated_ms(name, 1, 0.95) == pytest.approx(usual.stated_ms(name, 1, 0.95), rel=1e-6)
