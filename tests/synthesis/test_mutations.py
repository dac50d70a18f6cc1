"""Numbers changed in files of every kind, at random: verification finds each.

``python -m tests.synthesis.mutations --count 1000`` tries many more.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.synthesis.mutations import FILES, SETS, escaped

FAST = sorted(set(FILES) - {"budget", "budget, central queue"})


@pytest.mark.parametrize("kind", [*FAST, *SETS])
def test_a_changed_number_is_found(kind: str, tmp_path: Path) -> None:
    tried, missed = escaped(kind, np.random.default_rng([5, *map(ord, kind)]), 25, tmp_path)
    assert tried >= 20
    assert [(one.place, one.stated, one.changed) for one in missed] == []
