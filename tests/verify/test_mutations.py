"""Numbers changed in files of every kind, at random: verification finds each.

``python -m tests.verify.mutations --count 1000`` tries many more.
"""


import numpy as np
import pytest

from tests.verify.mutations import FILES, SETS, escaped

SLOW = {"budget", "budget, central queue", "modulated", "central queue near capacity",
        "central queue, random service", "batch arrivals", "classes",
        "finite samples, central queue"}
FAST = [kind for kind in FILES if kind not in SLOW]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*FAST, *SETS])
def test_a_changed_number_is_found(kind, tmp_path):
    tried, missed = escaped(kind, np.random.default_rng([5, *map(ord, kind)]), 10, tmp_path)
    assert tried >= 8
    assert [(one.place, one.stated, one.changed) for one in missed] == []
