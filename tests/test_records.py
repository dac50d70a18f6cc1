"""Records that read themselves by the annotations of their fields."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from ramsis.errors import InputFileError
from ramsis.fields import Fields
from ramsis.records import EMPTY, Count, Fraction, Positive, Reader, Record, Whole, WrittenRecord


def _doubled(item: Fields, key: str) -> float:
    return 2 * item.number(key)


@dataclass(frozen=True, slots=True)
class Part(Record):
    name: str
    share: Fraction = 0.25


@dataclass(frozen=True, slots=True)
class Parted(Record):
    parts: tuple[Part, ...]
    count: Count
    kind: Annotated[str, ("big", "small")] = "big"
    level: Annotated[int, Whole(2, 5)] = 3
    times_ms: tuple[Positive, ...] = ()
    names: Annotated[tuple[str, ...], EMPTY] = ()
    rates: dict[str, Fraction] | None = None
    twice: Annotated[float, Reader(_doubled)] = 0.0
    exact: bool = True

    def check(self, item: Fields) -> None:
        """Refuse a count that is not the parts'."""
        if self.count != len(self.parts):
            raise item.refusal("count", "not the number of parts", value=self.count)


@dataclass(frozen=True, slots=True)
class Result(WrittenRecord):
    gain: float | None
    bound: Fraction | None = None


def read(**changes: Any) -> Parted:
    return Parted.from_fields(Fields({"parts": [{"name": "a"}], "count": 1} | changes, "f.json"))


def test_a_record_is_read_by_its_annotations():
    assert read() == Parted((Part("a"),), 1)
    assert read(parts=[{"name": "a", "share": 1}, {"name": "b"}], count=2, kind="small", level=5,
                times_ms=[1, 2.5], names=[], rates={"x": 0.5}, twice=1.5, exact=False) == Parted(
        (Part("a", 1.0), Part("b")), 2, "small", 5, (1.0, 2.5), (), {"x": 0.5}, 3.0, False)


@pytest.mark.parametrize(("changes", "message"), [
    ({"parts": []}, "f.json: parts: not a list: got []"),
    ({"parts": [{"share": 0.5}]}, "f.json: parts[0].name: field is missing"),
    ({"parts": [{"name": "a", "share": 1.01}]}, "parts[0].share: not a valid number: got 1.01; "
                                                "allowed: a fraction in [0, 1]"),
    ({"count": 0}, "count: not a valid number: got 0; allowed: a whole number >= 1"),
    ({"count": 2}, "count: not the number of parts: got 2"),
    ({"kind": "medium"}, "kind: unknown kind: got 'medium'; allowed: big, small"),
    ({"level": 6}, "level: not a valid number: got 6; allowed: a whole number from 2 to 5"),
    ({"level": True}, "level: not a valid number"),
    ({"times_ms": [1, 0]}, "times_ms[1]: not a valid number: got 0"),
    ({"names": ["a", "a"]}, "names[1]: not a new name"),
    ({"rates": {"x": 2}}, "rates.x: not a valid number"),
    ({"rates": None}, "rates: not an object"),
    ({"exact": 1}, "exact: not a truth value"),
    ({"other": 1}, "f.json: other: unknown field; allowed: count, exact"),
])
def test_what_the_annotations_do_not_allow_is_refused(changes, message):
    with pytest.raises(InputFileError) as refused:
        read(**changes)
    assert message in str(refused.value)


def test_null_is_a_value_in_what_programs_write():
    for values in ({}, {"gain": None}, {"gain": None, "bound": None}):
        assert Result.from_fields(Fields(values, "f.json")) == Result(None)
    with pytest.raises(InputFileError, match="bound: not a valid number"):
        Result.from_fields(Fields({"gain": 1, "bound": 2}, "f.json"))
