"""Tables with a column of sizes: how they are understood, and what is refused."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles import ProfileSet, SizedTimes
from ramsis.profiles.checks import check_profile
from ramsis.profiles.importers import Given, import_profile
from ramsis.profiles.importers.table.sizes import fit_law

ROWS = """\
model,batch,seq_len,p95_ms
enc,1,8,4
enc,1,32,11
enc,4,8,10
enc,4,32,35
"""


def imported(folder: Path, text: str, given: Given | None = None, **options: Any) -> ProfileSet:
    path = folder / "table.csv"
    path.write_text(text)
    return import_profile(path, given=given, **options)


def sized_of(profile: ProfileSet) -> SizedTimes:
    sized = profile.models[0].sized
    assert sized is not None
    return sized


def notes_of(profile: ProfileSet) -> str:
    return "\n".join(profile.measurement["notes"])


@pytest.mark.parametrize(("heading", "unit"), [
    ("seq_len", "tokens"), ("Sequence Length", "tokens"), ("tokens", "tokens"),
    ("input_len", "tokens"), ("length", "tokens"), ("width", "pixels"), ("pixels", "pixels"),
    ("n_atoms", "atoms"), ("chars", "characters"), ("size", "units"),
])
def test_a_column_of_sizes_is_recognised(tmp_path, heading, unit):
    profile = imported(tmp_path, ROWS.replace("seq_len", heading))
    sized = sized_of(profile)
    assert (sized.unit, sized.law, sized.counts, sized.sizes) == (unit, "padded", (1, 4), (8, 32))
    assert sized.p95_ms == ((4.0, 11.0), (10.0, 35.0))
    assert [item.p95_ms for item in profile.models[0].batches] == [11.0, 35.0]
    assert f"size = {heading}" in notes_of(profile)
    assert f"times by size in {unit}, 2 counts to 4 x 2 sizes from 8 to 32; law padded: members " \
           "of a batch have one size" in notes_of(profile)


def test_samples_of_a_cell_give_its_statistics(tmp_path):
    text = "model,batch,tokens,latency_ms\n" + "".join(
        f"enc,1,{size},{size + i}\n" for size in (8, 32) for i in range(20))
    sized = sized_of(imported(tmp_path, text))
    assert sized.statistics == ("p95", "p99", "p90", "p50", "mean")
    assert sized.mean_ms == ((17.5, 41.5),)


def test_json_and_cells_that_were_not_measured(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"batch": 1, "tokens": 8, "p95_ms": 4}, {"batch": 1, "tokens": 32, '
                    '"p95_ms": 11}, {"batch": 4, "tokens": 8, "p95_ms": 10}]')
    profile = import_profile(path)
    assert sized_of(profile).p95_ms == ((4.0, 11.0), (10.0, None))
    assert [item.batch for item in profile.models[0].batches] == [1]
    assert "(1 of them not measured)" in notes_of(profile)


def test_one_size_is_ordinary(tmp_path):
    for text in (ROWS.replace(",32,", ",8,").replace("4,8,35\n", "8,8,35\n").replace(
            "1,8,11", "2,8,11"), "model,batch,resolution,p95_ms,accuracy\na,1,224,4,.5\n"
            "b,1,288,9,.6\n"):
        profile = imported(tmp_path, text)
        assert [model.sized for model in profile.models] == [None] * len(profile.models)
        assert "left out: " in notes_of(profile)


@pytest.mark.parametrize("law", ["padded", "packed"])
def test_batches_of_different_sizes_tell_the_law(tmp_path, law):
    rng = random.Random(1)
    lines = ["batch,max_len,total_tokens,latency_ms"]
    for _ in range(200):
        sizes = [rng.randint(3, 200) for _ in range(rng.choice([1, 2, 5, 8, 16]))]
        x = max(sizes) * len(sizes) if law == "padded" else sum(sizes)
        time_ms = (2 + 0.1 * len(sizes) + 0.05 * x) * rng.uniform(0.95, 1.05)
        lines.append(f"{len(sizes)},{max(sizes)},{sum(sizes)},{time_ms:.3f}")
    profile = imported(tmp_path, "\n".join(lines))
    sized = sized_of(profile)
    assert sized.law == law
    assert "relative errors: padded " in notes_of(profile)
    expected = 2 + 0.1 * np.array(sized.counts)[:, None] * (1 + 0.5 * np.array(sized.sizes))
    assert np.abs(sized.measured_ms("mean") / expected - 1.0).mean() < 0.05
    other = imported(tmp_path, "\n".join(lines), Given(law="packed"))
    assert sized_of(other).law == "packed"


def test_totals_alone_are_packed(tmp_path):
    rows = "batch,total_tokens,p95_ms\n1,8,4\n1,32,11\n4,32,10\n4,128,35\n"
    sized = sized_of(imported(tmp_path, rows))
    assert (sized.law, sized.sizes, sized.p95_ms) == ("packed", (8, 32), ((4, 11), (10, 35)))


def test_the_law_is_as_the_user_says(tmp_path):
    profile = imported(tmp_path, ROWS, Given(law="packed"))
    assert sized_of(profile).law == "packed"
    assert "law packed: as stated" in notes_of(profile)


@pytest.mark.parametrize(("text", "message"), [
    (ROWS.replace("1,8", "1,0"), "line 2, seq_len: not a size: got '0'; allowed: a whole number"),
    (ROWS.replace("1,8", "1,8.5"), "line 2, seq_len: not a size: got '8.5'"),
    (ROWS.replace("1,8", "1,"), "line 2, seq_len: no size in this row, as others have"),
    (ROWS.replace("1,8", "1,64"), "model enc: batch size 1 was not measured at this size: got "
                                  "'8 tokens'; allowed: a row with batch size 1 for each size"),
    (ROWS.replace(",32", ",70000"), "by size: sizes.*size is too large: got 70000; .*larger"),
    (ROWS.replace("1,32", "1,8"), "p95 of enc at batch size 1 appears twice"),
    ("model,batch,width,chars,p95_ms\na,1,8,8,4\na,1,16,16,9\n",
     "header: two columns for the size: got 'width, chars'; allowed: --column size=NAME with one"),
    ("model,batch,tokens,p95_ms,accuracy\na,1,8,4,.5\na,1,16,9,.5\nb,1,8,9,.6\n",
     "model b: no times by size, beside models with them; allowed: rows of two or more sizes"),
    ("batch,tokens,total_tokens,p95_ms\n1,8,8,4\n4,16,80,9\n",
     "line 3, total_tokens: the total size contradicts batch and longest size: got 80; "
     "allowed: 19 to 64"),
    ("batch,tokens,total_tokens,p95_ms\n1,8,8,4\n4,16,60,9\n",
     "too few batches with members of different sizes .*got 2; allowed: 8 or more"),
    ("batch,total_tokens,p95_ms\n1,8,4\n4,30,9\n",
     "line 3, total_tokens: not the total of requests of one size: got '30'; allowed: a multiple"),
])
def test_implausible_sizes_are_refused(tmp_path, text, message):
    with pytest.raises(InputFileError, match=message):
        imported(tmp_path, text)


def test_models_without_sizes_can_be_left_out(tmp_path):
    rows = "model,batch,tokens,p95_ms,accuracy\na,1,8,4,.5\na,1,16,9,.5\nb,1,8,9,.6\n"
    assert sized_of(imported(tmp_path, rows, models=["a"])).sizes == (8, 16)


def test_a_law_is_for_tables_only(tmp_path):
    with pytest.raises(InvalidValueError, match="--law"):
        imported(tmp_path, "model,batch,latency_ms\na,1,4\n", Given(law="packed"),
                 format="long-csv")


def test_times_that_fall_with_size_are_a_warning(tmp_path):
    (finding,) = [item for item in check_profile(imported(tmp_path, ROWS.replace(",11", ",2")))
                  if item.kind == "not-monotone"]
    assert "p95 2 ms of size 32 is taken to be 3 ms: times fall with count or size" in (
        finding.message)
    # Not where they fall by less than a tenth.
    noisy = check_profile(imported(tmp_path, ROWS.replace(",11", ",3.9")))
    assert "not-monotone" not in {item.kind for item in noisy}


def test_equal_sizes_do_not_tell_the_law():
    count, size = np.repeat([1, 2, 4], 3), np.tile([8, 16, 32], 3)
    fit = fit_law(count, size, count * size, 2.0 + 0.3 * count * size)
    assert not fit.tells
    assert fit.law == "padded"
    assert fit.time_ms(8, 64) == pytest.approx(2.0 + 0.3 * 8 * 64)
