"""``ramsis profile kernels``: GPU utilisation of a model from its kernel trace."""

from __future__ import annotations

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import complete_files
from ramsis.cli.output.rows import Column, json_option, print_json, print_rows
from ramsis.studies.sharing.gpu.kernels import V100, GpuLimits, kernel_metrics
from ramsis.studies.sharing.gpu.nsight import read_kernel_trace

_COLUMNS = (
    Column("metric", "metric"), Column("largest", "largest", ".2%"),
    Column("weighted", "over time", ".2%"),
)
_AT_LEAST_1 = click.IntRange(min=1)


@click.command("kernels", cls=Command, short_help="Measure how much of a GPU kernels occupy.")
@click.argument("trace", metavar="TRACE", shell_complete=complete_files)
@click.argument("metrics", metavar="METRICS", shell_complete=complete_files)
@click.option("--sms", type=_AT_LEAST_1, default=V100.sms, show_default=True,
              help="Multiprocessors of the GPU; this and the next four default to a V100.")
@click.option("--threads", type=_AT_LEAST_1, default=V100.threads, show_default=True,
              help="Threads of a multiprocessor.")
@click.option("--blocks", type=_AT_LEAST_1, default=V100.blocks, show_default=True,
              help="Blocks of a multiprocessor.")
@click.option("--registers", type=_AT_LEAST_1, default=V100.registers, show_default=True,
              help="Registers of a multiprocessor.")
@click.option("--shared-memory", type=_AT_LEAST_1, default=V100.shared_memory_bytes,
              show_default=True, help="Shared memory of a multiprocessor, in bytes.")
@click.option("--device", metavar="NAME",
              help="GPU of the trace, by its column Device; required if there are several.")
@click.option("--idle", is_flag=True, help="Also count time without a running kernel.")
@json_option
def kernels_command(
    trace: str, metrics: str, sms: int, threads: int, blocks: int, registers: int,
    shared_memory: int, device: str | None, idle: bool, as_json: bool,
) -> None:
    """Achieved occupancy and multiprocessors in use of a model's kernels.

    TRACE is the CSV of `nsys stats --report cuda_gpu_trace`, METRICS that of `ncu --csv --metrics
    sm__warps_active.avg.pct_of_peak_sustained_active` (or `--section Occupancy`), of the same run
    of the model made again.

    \b
    Examples:
      $ ramsis profile kernels nsys.csv ncu.csv
      $ ramsis profile kernels nsys.csv ncu.csv --sms 108 --shared-memory 167936 --json
    """
    gpu = GpuLimits(sms, threads, blocks, registers, shared_memory)
    kernels = read_kernel_trace(trace, metrics, device=device)
    measured = kernel_metrics(kernels, gpu, idle=idle)
    rows = [{"metric": name, "largest": heights.largest, "weighted": heights.weighted}
            for name, heights in (("occupancy", measured.occupancy),
                                  ("utilisation", measured.utilisation))]
    if as_json:
        print_json(rows, kernels=len(kernels), duration_ms=measured.duration_ms)
        return
    print_rows(_COLUMNS, rows)
    click.echo(f"\n{len(kernels)} kernels in {measured.duration_ms:.3f} ms")
