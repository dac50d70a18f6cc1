"""Load levels as users write them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.arrivals.loads import MAX_LEVELS, parse_loads
from ramsis.errors import InvalidValueError

_DECIMALS = st.decimals(min_value="0.001", max_value="100000", places=3)


@pytest.mark.parametrize(("text", "levels"), [
    ("400", (400.0,)),
    (" 400 , 0.5", (0.5, 400.0)),
    ("800,400,4e2,400.0", (400.0, 800.0)),
    ("400:1600:400", (400.0, 800.0, 1200.0, 1600.0)),
    ("0.1:0.5:0.1", (0.1, 0.2, 0.3, 0.4, 0.5)),
    ("7:7:3", (7.0,)),
    ("100:300:100,200:400:100,50", (50.0, 100.0, 200.0, 300.0, 400.0)),
    ("1e-9,1e9", (1e-9, 1e9)),
])
def test_numbers_lists_and_ranges(text, levels):
    assert parse_loads(text) == levels


@given(start=_DECIMALS, step=_DECIMALS, steps=st.integers(0, 50))
def test_a_range_has_both_ends_and_the_floats_nearest_to_its_decimals(start, step, steps):
    stop = start + steps * step
    levels = parse_loads(f"{start}:{stop}:{step}")
    assert levels == tuple(float(start + i * step) for i in range(steps + 1))
    assert levels[-1] == float(stop)


@given(st.lists(_DECIMALS, min_size=1, max_size=20))
def test_a_list_comes_out_rising_without_duplicates(numbers):
    text = ",".join(map(str, numbers))
    assert parse_loads(text) == tuple(sorted({float(number) for number in numbers}))


@given(start=_DECIMALS, step=_DECIMALS, steps=st.integers(0, 20), share=st.floats(0.05, 0.95))
def test_a_range_that_misses_its_end_is_refused(start, step, steps, share):
    stop = start + steps * step + step * Decimal(share)
    with pytest.raises(InvalidValueError, match="does not end on its last level"):
        parse_loads(f"{start}:{stop}:{step}")


@pytest.mark.parametrize("text", [
    "", " ", ",", "400,", "many", "nan", "-nan", "snan", "inf", "-inf", "1e400", "1e-400",
    "1e999999999999999999999", "0", "-5", "0.0", "400:800", "1:2:3:4", "1:2:0", "1:2:-1", "::",
    "1:inf:1", "400 800", "0x10", "1:2:nan"
])
def test_what_is_no_load_is_refused_with_the_text_and_what_is_allowed(text):
    with pytest.raises(InvalidValueError, match=r"^load: not a load: got .*; allowed: a number"):
        parse_loads(text)


@pytest.mark.parametrize("text", ["800:400:100", "1:2:0.3", "1:1e12:1", f"1:{MAX_LEVELS + 1}:1"])
def test_a_range_of_no_or_too_many_whole_steps_is_refused(text):
    with pytest.raises(InvalidValueError, match=rf"^load: .*got '{text}'; .*{MAX_LEVELS} levels"):
        parse_loads(text)


def test_the_longest_range_is_allowed():
    assert len(parse_loads(f"1:{MAX_LEVELS}:1")) == MAX_LEVELS
