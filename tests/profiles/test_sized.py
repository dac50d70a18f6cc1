"""Times by count and size: the record, its file, and the tables that it makes."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from ramsis.arrivals import sizes as arrival_sizes
from ramsis.cli.main import cli
from ramsis.errors import InputFileError
from ramsis.profiles import ProfileError, ProfileSet, SizedTimes, interpolate_front, load, save
from ramsis.profiles import sized as profile_sizes
from ramsis.profiles.sized import not_falling
from tests.profiles.samples import model, profile_set
from tests.work import lines_of

SCHEMA = ProfileSet.schema()


def times(**changes: Any) -> SizedTimes:
    values: dict[str, Any] = {
        "unit": "tokens", "law": "padded", "counts": (1, 4), "sizes": (8, 32),
        "p95_ms": ((2.0, 6.0), (5.0, 20.0)), **changes}
    return SizedTimes(**values)


def sized_set(**changes: Any) -> Any:
    return profile_set(replace(model("small", 0.7, {1: 6.0, 4: 20.0}), sized=times(**changes)))


def test_times_come_back_from_their_file(tmp_path):
    path = tmp_path / "sized.json"
    written = sized_set(mean_ms=((1.5, 5.0), (4.0, None)))
    save(written, path)
    assert load(path) == written
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)


def test_what_has_no_sizes_is_as_before():
    without = profile_set(model("small", 0.7, {1: 6.0, 4: 20.0}))
    assert "sized" not in without.to_document()["models"][0]
    assert sized_set().fingerprint == without.fingerprint
    assert (sized_set().latency_table().latency_ms == without.latency_table().latency_ms).all()


def test_a_front_between_models_has_no_sizes():
    front = interpolate_front(sized_set(), step=0.1, max_batch=1)
    assert [item.sized for item in front.models] == [None]


@pytest.mark.parametrize(("changes", "message"), [
    ({"unit": " "}, "unit: not a name"),
    ({"law": "mean"}, "law: unknown law: got 'mean'; allowed: padded, packed"),
    ({"counts": (2, 4)}, "counts: no times of single requests: got 2"),
    ({"counts": (1, 1)}, r"counts\[1\]: numbers do not rise: got 1; allowed: above 1"),
    ({"counts": "14"}, "counts: not a list"),
    ({"sizes": (0, 8)}, r"sizes\[0\]: .*: got 0; allowed: a whole number >= 1"),
    ({"sizes": (8, 8)}, r"sizes\[1\]: numbers do not rise: got 8; allowed: above 8"),
    ({"sizes": (8.5, 9)}, r"sizes\[0\]: .*: got 8.5; allowed: a whole number >= 1"),
    ({"sizes": (8, 65537)}, r"sizes\[1\]: size is too large: got 65537; .*larger unit"),
    ({"sizes": (8,), "p95_ms": ((2.0,), (5.0,))}, "sizes: wrong number of entries: .* 2 or more"),
    ({"p95_ms": None}, "no latency statistic"),
    ({"p95_ms": ((2.0, 6.0),)}, "p95_ms: list has the wrong length: .* 2 entries"),
    ({"p95_ms": ((2.0, 6.0), (5.0,))}, r"p95_ms\[1\]: list has the wrong length: .* 2 entries"),
    ({"p95_ms": ((2.0, 6.0), (5.0, 0.0))}, r"p95_ms\[1\]\[1\]: .*got 0.0; .*from 0.0001"),
    ({"p95_ms": ((2.0, 6.0), (5.0, 1e13))}, r"p95_ms\[1\]\[1\]: .*got 1000.*; .*to 1e\+12"),
    ({"p95_ms": ((2.0, None), (5.0, 8.0))}, r"p95_ms\[0\]\[1\]: no time of a single request"),
])
def test_wrong_times_are_refused(changes, message):
    with pytest.raises(ProfileError, match=message):
        times(**changes)


def test_a_file_says_where_it_is_wrong(tmp_path):
    document = sized_set().to_document()
    path = tmp_path / "sized.json"
    for change, message in (
            ({"law": "mean"}, r"models\[0\]\.sized\.law: unknown law"),
            ({"p95": 1}, r"models\[0\]\.sized\.p95: unknown field"),
            ({"unit": None}, r"models\[0\]\.sized\.unit: null")):
        changed = json.loads(json.dumps(document))
        changed["models"][0]["sized"].update(change)
        path.write_text(json.dumps(changed))
        with pytest.raises(InputFileError, match=message):
            load(path)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(changed, SCHEMA)
    del document["models"][0]["sized"]["counts"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=r"sized\.counts: field is missing"):
        load(path)


def test_a_long_row_of_whole_numbers_is_read_cell_by_cell():
    def read(sizes: int) -> object:
        return SizedTimes("tokens", "padded", (1,), tuple(range(1, sizes + 1)),
                          p95_ms=(tuple(range(1, sizes + 1)),))

    assert lines_of(lambda: read(1000)) < 15 * lines_of(lambda: read(100))


def test_units_of_a_set_are_one():
    second = replace(model("large", 0.8, {1: 6.0}), sized=times(unit="pixels"))
    with pytest.raises(ProfileError, match=r"models\[1\]\.sized\.unit: sizes in different units"):
        profile_set(*sized_set().models, second)


def test_between_points_times_are_bilinear_and_beyond_the_counts_linear():
    table = times().table("p95", 8, 32)
    assert table.padded
    assert table.step == 1
    assert table.time_ms.shape == (8, 34)
    row_of_one, row_of_four = table.time_ms[0], table.time_ms[3]
    assert row_of_one[[1, 8, 20, 32]].tolist() == [2.0, 2.0, 4.0, 6.0]
    assert row_of_four[[8, 20, 32]].tolist() == [5.0, 12.5, 20.0]
    assert table.time_ms[1, 20] == pytest.approx((2 * 4.0 + 12.5) / 3)
    assert table.time_ms[7, [8, 32]] == pytest.approx([5 + 4 * 1.0, 20 + 4 * 14 / 3])


def test_a_cell_that_was_not_measured_goes_on_from_smaller_counts():
    filled = times(p95_ms=((2.0, 6.0), (5.0, None))).latency_ms("p95", 4)
    assert filled[:, 1].tolist() == [6.0, 12.0, 18.0, 24.0]


def test_packed_times_depend_on_the_total():
    packed = times(law="packed", p95_ms=((2.0, 8.0), (8.0, 32.0))).table("p95", 4, 32)
    assert not packed.padded
    assert packed.step == 1
    assert packed.time_ms[0, [8, 20, 32]].tolist() == [2.0, 5.0, 8.0]
    assert packed.time_ms[3, [4 * 8, 4 * 20, 4 * 32]].tolist() == [8.0, 20.0, 32.0]
    coarse = times(law="packed", counts=(1, 512), sizes=(8, 512)).table("p95", 512, 512)
    assert coarse.step == 32
    assert coarse.time_ms.shape == (512, 8194)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["padded", "packed"]))
def test_tables_never_fall(seed, law):
    rng = np.random.default_rng(seed)
    noisy = rng.uniform(0.5, 5.0, (3, 4))
    made = SizedTimes.of(noisy, (1, 3, 6), (2, 5, 9, 12), law=law)
    time_ms = made.table("p95", 8, 12).time_ms
    assert (np.diff(time_ms, axis=0) >= 0).all()
    assert (np.diff(time_ms, axis=1) >= 0).all()
    rising = not_falling(noisy)
    assert (not_falling(rising) == rising).all()


def test_slower_and_longer_times():
    assert sized_set().with_overhead(1.0).models[0].sized.p95_ms == ((3.0, 7.0), (6.0, 21.0))
    assert sized_set().slower(2.0).models[0].sized.p95_ms == ((4.0, 12.0), (10.0, 40.0))


def test_times_by_size_are_shown(tmp_path):
    path = tmp_path / "sized.json"
    save(sized_set(p95_ms=((2.0, 6.0), (5.0, None))), path)
    shown = CliRunner().invoke(cli, ["profile", "show", str(path)])
    assert "small: p95 in ms by batch size and tokens, padded (a batch takes as long as the " \
           "longest size needs)\n       8     32\n1  2.000  6.000\n4  5.000      -\n" in (
               shown.stdout)
    rows = json.loads(CliRunner().invoke(cli, ["profile", "show", str(path), "--json"]).stdout)
    assert [(row["batch"], row["size"], row["latency_ms"]) for row in rows["sized"]] == [
        (1, 8, 2.0), (1, 32, 6.0), (4, 8, 5.0)]
    other = CliRunner().invoke(cli, ["profile", "show", "digits-cpu", "--json"])
    assert "sized" not in json.loads(other.stdout)


def test_a_missing_statistic_is_named():
    with pytest.raises(ProfileError, match=r"no such latency statistic.*'mean'.*p95"):
        times().table("mean", 4, 32)


def test_sizes_have_one_limit():
    assert arrival_sizes.MAX_SIZE == profile_sizes.MAX_SIZE
