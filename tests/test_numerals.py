"""Numbers in texts of tables, logs and options."""

import pytest

from ramsis.numerals import duration_ms


@pytest.mark.parametrize(("text", "expected_ms"), [
    ("726.112069ms", 726.112069), ("432.651µs", 0.432651), ("432.651μs", 0.432651),
    ("0.031s", 31), ("12 ms", 12), ("1e3us", 1), (".5 sec", 500), ("1m2.3s", 62_300),
    ("1h0m0.5s", 3_600_500), ("2 min", 120_000), ("850 NS", 0.00085), ("4512 usec", 4.512),
    ("0s", 0),
])
def test_durations_carry_their_unit(text, expected_ms):
    assert duration_ms(text) == pytest.approx(expected_ms, rel=1e-15)


def test_bare_number_has_the_unit_that_is_named():
    assert duration_ms("31", "us") == 0.031
    assert duration_ms("31ms", "us") == 31


@pytest.mark.parametrize("text", [
    "", "ms", "12", "12 apples", "1s 5", "5 1s", "-3ms", "nan", "inf", "1_0ms", "1.2.3ms",
    "9" * 81 + "ms", "١ms", "1e9999s", "1e400s",
])
def test_other_texts_are_no_durations(text):
    with pytest.raises(ValueError, match="not a duration"):
        duration_ms(text)
