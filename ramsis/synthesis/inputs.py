"""What policies were made from, as their files say it."""

from __future__ import annotations

import json

from ramsis.files import fingerprint
from ramsis.policy import Inputs
from ramsis.profiles import ProfileSet
from ramsis.synthesis.settings import SynthesisSettings


def inputs_of(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    """The record of a profile and settings."""
    return with_settings(Inputs(profile.fingerprint, profile.name, ""), settings)


def with_settings(inputs: Inputs, settings: SynthesisSettings) -> Inputs:
    """The record of the same profile with other settings."""
    options = json.loads(json.dumps(settings.as_dict()))  # plain values, as files have them
    return Inputs(inputs.profile, inputs.profile_name, fingerprint(options), options)
