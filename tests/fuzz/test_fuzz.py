"""Damaged files and odd options, the same in every run; ``make fuzz`` tries others, and more."""


import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import case_of, examine, told
from tests.fuzz.kit import make_kit


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    return make_kit(tmp_path_factory.mktemp("fuzz") / "kit", told)


@pytest.mark.slow
@settings(max_examples=80, derandomize=True, suppress_health_check=list(HealthCheck))
@given(number=st.integers(0, 2**32))
def test_damaged_files_and_odd_options_are_answered_in_a_line(kit, number):
    """To see one again: ``python -m tests.fuzz --seed NUMBER --budget 1``."""
    case = case_of(number, kit)
    assert not examine(case, kit, kit.parent / "case"), (number, case.words)
