"""A profile with confidences to test with."""

from dataclasses import replace

import numpy as np

from ramsis import load_profile
from ramsis.arrays import BoolArray, FloatArray
from ramsis.profiles import ProfileSet
from ramsis.profiles.confidences import Confidences

MODELS = ("svm-poly-1600", "svm-poly-3200", "svm-poly-6400", "svm-poly-12000")


def drawn(size: int, seed: int = 0, overlap: float = 1.0) -> dict[
        str, tuple[BoolArray, FloatArray]]:
    """Correctness and confidence of four models on samples of which some are hard.

    A model errs on a share of the samples that rises with their hardness; ``overlap`` is the
    share of that luck which all models have in common.
    """
    rng = np.random.default_rng(seed)
    profile = load_profile("digits-cpu")
    hardness, common = rng.random(size), rng.random(size)
    samples = {}
    for model in profile.models:
        if model.name in MODELS:
            own = np.where(rng.random(size) < overlap, common, rng.random(size))
            right = own > np.minimum(4.0 * (1.0 - model.accuracy) * hardness**3, 1.0)
            samples[model.name] = right, 1.0 - hardness + rng.normal(0.0, 0.05, size)
    return samples


def profile_with_confidences(size: int = 60_000, *, overlap: float = 1.0) -> ProfileSet:
    """The shipped profile with confidences on drawn samples."""
    chosen: ProfileSet = load_profile("digits-cpu")
    return replace(chosen, confidences=Confidences.of(drawn(size, overlap=overlap)))
