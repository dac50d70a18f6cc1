"""Kernel traces: heights over intervals, multiprocessors of a launch, and the two profilers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles.importers.nsight import OCCUPANCY_METRIC, read_kernel_trace
from ramsis.profiles.kernels import (
    V100,
    GpuLimits,
    Launch,
    blocks_per_sm,
    heights,
    kernel_metrics,
    sms_needed,
    utilisation,
)

TRACE = """\
Processing [run.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
0,500000,1,,,,,,,,,,1.0,2.0,Pageable,Device,V100,1,,7,[CUDA memcpy HtoD]
1000000,2000000,2,1000,1,1,256,1,1,32,0.000,0.000,,,,,V100,1,,7,"void conv<float, (int)4>(float *)"
2000000,2000000,3,20,1,1,128,2,1,64,0.016,0.000,,,,,V100,1,,8,"at::native::relu(float *)"
"""
LONG = """\
==PROF== Connected to process 1
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","python","host","conv","1","7","(256, 1, 1)","(1000, 1, 1)","0","7.0","Command line",\
"METRIC","%","40"
"1","1","python","host","relu(float *)","1","7","(128, 2, 1)","(20, 1, 1)","0","7.0",\
"Command line","METRIC","%","30"
""".replace("METRIC", OCCUPANCY_METRIC)
_RAW = """\
"ID","Kernel Name","Context","Stream","Block Size","Grid Size","METRIC"
"","","","","","","%"
"0","conv","1","7","(256, 1, 1)","(1000, 1, 1)","40"
"1","relu","1","7","(128, 2, 1)","(20, 1, 1)","30"
""".replace("METRIC", OCCUPANCY_METRIC)


def test_two_kernels_that_overlap() -> None:
    found = heights([0, 1], [2, 3], [40, 30])
    assert found.largest == 70
    assert found.weighted == pytest.approx(46.67, abs=0.005)
    apart = heights([0, 3], [2, 4], [40, 30])
    assert apart.weighted == pytest.approx(110 / 3)
    assert heights([0, 3], [2, 4], [40, 30], idle=True).weighted == pytest.approx(110 / 4)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(0, 100)),
                min_size=1, max_size=8))
def test_heights_against_counting_every_unit_of_time(
    kernels: list[tuple[int, int, int]],
) -> None:
    units = [[m for s, d, m in kernels if s <= t < s + d] for t in range(40)]
    busy = [sum(there) for there in units if there]
    found = heights([k[0] for k in kernels], [k[0] + k[1] for k in kernels],
                    [k[2] for k in kernels])
    assert found.largest == pytest.approx(max(busy))
    assert found.weighted == pytest.approx(sum(busy) / len(busy))


def test_multiprocessors_of_a_launch() -> None:
    launch = Launch((1000, 1, 1), (256, 1, 1), registers=32)
    assert blocks_per_sm(launch, V100) == 8
    assert sms_needed(launch, V100) == 125
    assert utilisation(launch, V100) == 1.0
    memory = Launch((30, 2, 1), (64, 1, 1), registers=8, shared_memory_bytes=40_000)
    assert blocks_per_sm(memory, V100) == 2
    assert utilisation(memory, V100) == 30 / 80
    assert blocks_per_sm(Launch((1, 1, 1), (32, 1, 1)), V100) == 32
    with pytest.raises(InvalidValueError, match="a block that no multiprocessor holds"):
        blocks_per_sm(Launch((1, 1, 1), (1024, 1, 1), registers=255), V100)
    with pytest.raises(InvalidValueError, match="sms: not positive"):
        GpuLimits(0, 1, 1, 1, 1)


@pytest.mark.parametrize("metrics", [LONG, _RAW])
def test_both_profilers_give_the_metrics_of_a_model(tmp_path: Path, metrics: str) -> None:
    trace, other = tmp_path / "trace.csv", tmp_path / "ncu.csv"
    trace.write_text(TRACE)
    other.write_text(metrics)
    kernels = read_kernel_trace(trace, other)
    assert [(k.start_ms, k.end_ms, k.occupancy) for k in kernels] == [(1, 3, 0.4), (2, 4, 0.3)]
    assert kernels[1].launch == Launch((20, 1, 1), (128, 2, 1), 64, 16_000)
    found = kernel_metrics(kernels, V100)
    assert found.occupancy.largest == pytest.approx(0.7)
    assert found.occupancy.weighted == pytest.approx(1.4 / 3)
    used = math.ceil(20 / 4) / 80  # registers: 65536 // (256 x 64) = 4 blocks
    assert found.utilisation.largest == pytest.approx(1 + used)
    assert found.utilisation.weighted == pytest.approx((2 + 2 * used) / 3)


@pytest.mark.parametrize(("trace", "metrics", "message"), [
    (TRACE, LONG.replace("conv", "gemm"), "kernel of the trace has no metrics: got 'conv'"),
    (TRACE, LONG.replace("(256, 1, 1)", "(128, 1, 1)"), "kernel of the trace has no metrics"),
    (TRACE, LONG.replace(OCCUPANCY_METRIC, "dram"), "no kernel has the metric"),
    (TRACE, LONG.replace('"40"', '"140"'), "not a percentage"),
    (TRACE.split("1000000,")[0], LONG, "trace has no kernels"),
    ("a,b\n1,2\n", LONG, "no header with the columns of a kernel trace"),
    (TRACE.replace("Start (ns)", "Start (h)"), LONG, "unknown unit"),
])
def test_traces_that_do_not_match_are_refused(
    tmp_path: Path, trace: str, metrics: str, message: str
) -> None:
    (tmp_path / "trace.csv").write_text(trace)
    (tmp_path / "ncu.csv").write_text(metrics)
    with pytest.raises(InputFileError) as caught:
        read_kernel_trace(tmp_path / "trace.csv", tmp_path / "ncu.csv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
