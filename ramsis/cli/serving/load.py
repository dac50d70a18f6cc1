"""``ramsis load``: send a workload to a server of the Open Inference Protocol."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ramsis.cli.options.command import MORE_ARRIVALS, Command
from ramsis.cli.options.param_types import OUT_FILE, SLOS
from ramsis.cli.options.shared import workload_options
from ramsis.cli.options.workloads import WorkloadOptions
from ramsis.cli.output.rows import (
    Column,
    model_words,
    print_json,
    print_rows,
    progress,
    table_options,
)
from ramsis.cluster import SloClass, merged_classes
from ramsis.errors import InputFileError
from ramsis.serving.load.settings import TENSORS, LoadSettings, libraries, model_url

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ramsis.serving.load.client import RemoteModel, Samples

_COLUMNS = (
    Column("requests", "requests", "d"),
    Column("offered_qps", "load (QPS)", ".6g"),
    Column("accuracy", "accuracy", ".4f"),
    Column("violation_rate", "violations", ".4%"),
    Column("effective_accuracy", "effective accuracy", ".4f"),
    Column("response_p50_ms", "p50 response (ms)", ".2f", wide=True),
    Column("response_p99_ms", "p99 response (ms)", ".2f"),
    Column("late", "late", "d", wide=True),
    Column("dropped", "dropped", "d", wide=True),
    Column("failed", "failed", "d"),
    Column("lag_p99_ms", "p99 delay of sending (ms)", ".2f"),
    Column("models", "models (share)", wide=True),
)
_OPINIONS = Column("second_opinions", "second opinions", ".1%")  # where answers state their stage


_MORE = (
    *MORE_ARRIVALS, "--deadline", "--tensors", "--timeout-s")
"""Options that only --help-all shows."""


@click.command("load", cls=Command, more=_MORE)
@click.argument("url", metavar="URL")
@click.option("--model", metavar="NAME",
              help="Model at the server, if the URL does not end in /v2/models/NAME.")
@click.option("--slo-ms", "classes", type=SLOS, required=True, metavar="MS|MS:SHARE,...",
              help="Deadline after arrival, in ms; of several classes with their shares of the "
              "requests: 100:0.3,150:0.7.")
@workload_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the arrivals, which equal those of `simulate` with this seed.")
@click.option("--data", type=click.Path(), metavar="FILE",
              help="Samples to send: an .npz with an array for each input, known answers as "
                   "`label` or under the name of an output, and for inputs of any length the size "
                   "of each sample as `size`.  [default: random numbers]")
@click.option("--deadline/--no-deadline", "send_deadline", default=True,
              help="Send each request's deadline to the server (default).")
@click.option("--tensors", type=click.Choice(TENSORS), default=TENSORS[0], show_default=True,
              help="Encoding: bytes both ways, JSON, or requests as bytes if the server supports "
                   "them (default).")
@click.option("--timeout-s", type=float, default=30.0, show_default=True,
              help="Time after which a request without an answer has failed.")
@click.option("--request-log", type=OUT_FILE, metavar="FILE",
              help="Write the outcome of each request, for `audit`.")
@table_options
def load_command(
    url: str,
    model: str | None,
    classes: tuple[SloClass, ...],
    workload: WorkloadOptions,
    seed: int,
    data: str | None,
    send_deadline: bool,
    tensors: str,
    timeout_s: float,
    request_log: Path | None,
    as_json: bool,
) -> None:
    """Send requests to a server, at times that do not depend on its answers.

    URL is any server of the Open Inference Protocol: `ramsis serve`, Triton, KServe. The workload
    is that of `simulate`: loads, traces or recorded timestamps. Latencies count from when a
    request was to be sent, so no delay of the generator is left out ("coordinated
    omission"). 503 and 429 count as dropped, other errors as failed; if all failed, the exit code
    is 3.

    \b
    Examples:
      $ ramsis load http://localhost:8000 --model digits --slo-ms 25 --load 400 --duration-s 10
      $ ramsis load http://localhost:8000/v2/models/digits --slo-ms 25 --trace day \\
          --data digits.npz --request-log requests.csv
    """
    libraries()
    workload.check()
    if workload.loads is not None and len(workload.loads) > 1:
        raise click.UsageError("A server takes one --load at a time.")
    target, classes = model_url(url, model), merged_classes(classes)
    (arrivals,) = workload.workloads(None)
    from ramsis.arrays import read_arrays
    from ramsis.serving.load.run import generate_load, planned, summary

    arrays = None if data is None else read_arrays(data)
    sent = planned(arrivals, classes, seed)
    settings = LoadSettings(sent.slo_ms, send_deadline, timeout_s, tensors)
    samples = partial(_samples, arrays, data or "", sent.rng)
    with progress("answers", len(sent.arrival_s)) as advance:
        result = generate_load(target, sent.arrival_s, samples, settings, rng=sent.rng,
                               on_done=advance)
    if request_log is not None:
        from ramsis.audit.request_log import write_request_log

        write_request_log(request_log, result.requests,
                          sized=result.requests[0].size is not None)
    row = summary(result, arrivals.duration_ms)
    has_failed = row["failed"] == row["requests"]
    if result.first_failure and not has_failed:
        click.echo(f"note: the first of {row['failed']} failures: {result.first_failure}",
                   err=True)
    if as_json:
        print_json([{"url": target, **row}])
    else:
        opinions = [_OPINIONS] if "second_opinions" in row else []
        print_rows([*_COLUMNS, *opinions], [{**row, "models": model_words(row["model_share"], 4)}])
    if has_failed:
        raise InputFileError(f"all {row['requests']} requests failed, the first: "
                             f"{result.first_failure}", where=target)


def _samples(
    arrays: dict[str, NDArray[Any]] | None, where: str, rng: Any, model: RemoteModel
) -> Samples:
    return model.random_samples(256, rng) if arrays is None else model.samples(arrays, where)
