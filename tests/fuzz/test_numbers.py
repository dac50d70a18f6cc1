"""Some settings that nobody would type; ``make fuzz N=300`` tries many."""


import pytest

from tests.fuzz.numbers import findings, setting_of
from tests.slow import slow_after


@pytest.mark.parametrize("seed", slow_after(2, (0, 2, 1, *range(3, 8))))
def test_whole_commands_keep_what_they_state(seed, tmp_path):
    setting = setting_of(seed, quick=True)
    assert findings(setting, tmp_path) == [], setting.words
