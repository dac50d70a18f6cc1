"""Profiles of sharing: what is read, what is skipped, what is refused."""

import csv
from pathlib import Path

import pytest

from ramsis.errors import InputFileError
from ramsis.studies.sharing.gpu.profile import find_sharing_profile, read_sharing_profile

_HEADER = ("model,batch,latency_s,throughput_rps,mem_cap_pct,ach_occ_pct,wavg_ach_occ_pct,"
           "wavg_sm_util_pct,gpu_type,mps_share_pct,flag\n")


def _written(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(_HEADER + "".join(row + "\n" for row in rows))
    return path


def test_every_row_of_the_v100_is_batch_over_latency():
    """Within half a step of the printed latency, and of the printed throughput."""
    path = find_sharing_profile("v100")
    profile = read_sharing_profile(path)
    assert len(profile.rows) == 68
    assert [line.split(":")[0] for line in profile.skipped] == [
        "inception_v3 batch 128", "resnext50_32x4d batch 8", "resnext50_32x4d batch 16"]
    with path.open(newline="") as stream:
        printed = {(row["model"], int(row["batch"])): row for row in csv.DictReader(stream)}
    for row in profile.rows:
        given = printed[row.model, row.batch]
        rate = float(given["throughput_rps"])
        step_ms = 1000 * row.batch * (1 / (rate - 0.005) - 1 / rate)
        assert abs(row.latency_ms - 1000 * float(given["latency_s"])) <= 0.05 + step_ms
        assert row.rate_rps == pytest.approx(rate)
        # A latency that is printed like this one has a throughput that is printed like that one.
        printed_ms = 1000 * float(given["latency_s"])
        assert (1000 * row.batch / (printed_ms + 0.05) - 0.005 <= rate
                <= 1000 * row.batch / (printed_ms - 0.05) + 0.005)


def test_types_and_shares_have_their_own_rows(tmp_path):
    path = _written(tmp_path, "m,4,0.0100,400,10,50,30,40,a,,", "m,4,0.0200,200,10,50,30,40,a,50,",
                    "m,4,0.0050,800,10,50,30,40,b,,ok", "m,8,0.1,80,1,1,1,1,a,,garbled: all of it")
    profile = read_sharing_profile(path)
    assert profile.gpu_types() == ("a", "b")
    assert [row.batch for row in profile.batches("m", "a")] == [4]
    assert profile.batches("m", "c") == ()


@pytest.mark.parametrize(("row", "message"), [
    ("m,4,0.0200,400,10,50,30,40,a,,", "latency is not batch / throughput"),
    ("m,0,0.0100,400,10,50,30,40,a,,", "not a batch size"),
    ("m,4,0.0100,400,110,50,30,40,a,,", "mem_cap_pct: not a percentage"),
    ("m,4,0.0100,400,10,50,30,40,a,120,", "mps_share_pct: not a percentage"),
    ("m,4,0.0100,,10,50,30,40,a,,", "throughput_rps: cell is empty"),
    ("m,4,0.0100,400,10,50,30,40,a,,unreadable", "no readable rows"),
])
def test_what_cannot_be_is_refused_in_a_line(tmp_path, row, message):
    with pytest.raises(InputFileError, match=message):
        read_sharing_profile(_written(tmp_path, row))


def test_a_case_stands_once(tmp_path):
    row = "m,4,0.0100,400,10,50,30,40,a,,"
    with pytest.raises(InputFileError, match="the same case stands twice"):
        read_sharing_profile(_written(tmp_path, row, row))
