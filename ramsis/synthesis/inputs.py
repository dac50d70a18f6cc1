"""What policies were made from, as their files say it."""

from __future__ import annotations

from ramsis.files import fingerprint
from ramsis.policy import Inputs
from ramsis.profiles import ProfileSet
from ramsis.synthesis.settings import SynthesisSettings

__all__ = ["inputs_of"]


def inputs_of(profile: ProfileSet, settings: SynthesisSettings) -> Inputs:
    """The record of a profile and settings."""
    return Inputs(
        profile=profile.fingerprint,
        profile_name=profile.name,
        settings=fingerprint(settings.as_dict()),
    )
