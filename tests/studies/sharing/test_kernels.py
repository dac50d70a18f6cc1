"""Kernel traces: heights over intervals, multiprocessors of a launch, and the two profilers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.studies.sharing.gpu.kernels import (
    V100,
    GpuLimits,
    Launch,
    blocks_per_sm,
    heights,
    kernel_metrics,
    sms_needed,
    utilisation,
)
from ramsis.studies.sharing.gpu.nsight import OCCUPANCY_METRIC, _round_number, read_kernel_trace

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


def test_two_kernels_that_overlap():
    found = heights([0, 1], [2, 3], [40, 30])
    assert found.largest == 70
    assert found.weighted == pytest.approx(46.67, abs=0.005)
    apart = heights([0, 3], [2, 4], [40, 30])
    assert apart.weighted == pytest.approx(110 / 3)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(0, 100)),
                min_size=1, max_size=8))
def test_heights_against_counting_every_unit_of_time(kernels):
    units = [[m for s, d, m in kernels if s <= t < s + d] for t in range(40)]
    busy = [sum(there) for there in units if there]
    found = heights([k[0] for k in kernels], [k[0] + k[1] for k in kernels],
                    [k[2] for k in kernels])
    assert found.largest == pytest.approx(max(busy))
    assert found.weighted == pytest.approx(sum(busy) / len(busy))


def test_multiprocessors_of_a_launch():
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
def test_both_profilers_give_the_metrics_of_a_model(tmp_path, metrics):
    trace, other = tmp_path / "trace.csv", tmp_path / "ncu.csv"
    trace.write_text(TRACE)
    other.write_text(metrics)
    kernels = read_kernel_trace(trace, other)
    assert [(k.start_ms, k.end_ms, k.occupancy) for k in kernels] == [(1, 3, 0.4), (2, 4, 0.3)]
    assert kernels[1].launch == Launch((20, 1, 1), (128, 2, 1), 64, 16_384)
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
    (TRACE[:TRACE.index(",V100,1,,8")], LONG, "line 5: line is cut off or has cells too many"),
    (TRACE, LONG[:LONG.rindex(',"Command')], "line is cut off or has cells too many"),
    (TRACE, LONG.replace('"40"', '"n/a"'), "Metric Value: not a number: got 'n/a'"),
    (TRACE.replace("0.016", "inf"), LONG, "StcSMem (MB): not an amount of memory"),
    (TRACE.replace("\n2000000,", "\n" + 400 * "9" + ","), LONG, "Start (ns): not finite"),
    (TRACE.replace("StcSMem (MB)", "evil:f"), LONG, "StcSMem: column is missing"),
    (TRACE.replace("V100,1,,8", "A100,1,,8", 1), LONG, "trace of several GPUs: got 'V100, A100'"),
    ("", LONG, "file is empty"),
    ("SKIPPED: run.sqlite does not contain CUDA trace data.\n", LONG, "no header with"),
])
def test_traces_that_do_not_match_are_refused(tmp_path, trace, metrics, message):
    (tmp_path / "trace.csv").write_text(trace)
    (tmp_path / "ncu.csv").write_text(metrics)
    with pytest.raises(InputFileError) as caught:
        read_kernel_trace(tmp_path / "trace.csv", tmp_path / "ncu.csv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


_STATS = """\

NOTICE: Existing SQLite export found: run.sqlite

Processing [run.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
"1,000,000","2,000,000",9,8,1,1,64,1,1,32,0.033,0.000,,,,,V100 (1),1,,13,\
"f<(bool)1, int>(int, <unnamed>::T)"
1500000,1000000,4,8,1,1,64,1,1,32,0.000,0.025,,,,,V100 (1),1,,14,"void a::<unnamed>::f(float *)"
1700000,1000000,5,8,1,1,64,1,1,32,0.000,0.000,,,,,V100 (0),1,,7,f(int)
2000000,900,7,,,,,,,,,,4.194,6337.5,Pinned,Device,V100 (1),1,,13,[CUDA memcpy Host-to-Device]
2100000,900,8,,,,,,,,,,0.001,10.5,Device,,V100 (1),1,,13,[CUDA memset]

Processing [run.sqlite] with [cuda_gpu_kern_sum.py]...
Time (%),Total Time (ns),Instances,Name
100.0,4000000,2,f
"""
_SECTIONS = """\
1,5 is what the program itself printed
==PROF== Disconnected from process 1
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type",\
"Rule Description"
"0","1","f","1","7","(64, 1, 1)","(8, 1, 1)","0","7.0","Occupancy","Achieved Occupancy","%","99.5",
"1","1","f","1","7","(64, 1, 1)","(8, 1, 1)","1","7.0","Speed","Elapsed Cycles","cycle","1,587",
"1","1","f","1","7","(64, 1, 1)","(8, 1, 1)","1","7.0","Occupancy","Achieved Occupancy","%","20.5",
"1","1","f","1","7","(64, 1, 1)","(8, 1, 1)","1","7.0","Occupancy","","","","Rule","OPT","a, b"
"2","1","f","1","7","(64, 1, 1)","(8, 1, 1)","1","7.0","Occupancy","Achieved Occupancy","%","70",
"""


def test_what_the_profilers_print_besides(tmp_path):
    """Notices, further reports, rules, short rows, thousands, two GPUs, launches of two streams.

    The kernel that starts second was launched first.
    """
    trace, other = tmp_path / "trace.csv", tmp_path / "ncu.csv"
    trace.write_text(_STATS)
    other.write_text(_SECTIONS)
    found = read_kernel_trace(trace, other, device="V100 (1)")
    assert [(k.start_ms, k.occupancy) for k in found] == [(1.0, 0.7), (1.5, 0.205)]
    assert [k.launch.shared_memory_bytes for k in found] == [32_768, 24_576]
    assert [blocks_per_sm(k.launch, V100) for k in found] == [3, 4]
    first = read_kernel_trace(trace, other, device="V100 (0)")
    assert [k.occupancy for k in first] == [0.995]
    with pytest.raises(InputFileError, match=r"trace has no such GPU: got 'A100'"):
        read_kernel_trace(trace, other, device="A100")


@given(st.integers(0, 96), st.integers(0, 5))
def test_shared_memory_of_whole_kibibytes_survives_rounding(kib, halvings):
    """Of what is printed in thousandths of a megabyte."""
    true = 1024 * kib
    found = _round_number(float(f"{true / 1e6:.3f}") * 1e6, 500)
    assert abs(found - true) <= 1000
    power = 98_304 >> halvings
    assert _round_number(float(f"{power / 1e6:.3f}") * 1e6, 500) == power
