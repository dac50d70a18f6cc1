"""``ramsis profile measure``: run models, and write a profile file of their latencies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import (
    BATCH_SIZES,
    DEVICE,
    DIMENSION,
    SIZE_POINTS,
)
from ramsis.cli.output.rows import Column, json_option, print_json, print_rows, progress, say
from ramsis.profiles.measure import (
    BACKENDS,
    BATCHES,
    ORDERS,
    PERCENTILES,
    MeasureSettings,
    Observer,
    Options,
    StopRule,
    measure_profile,
)
from ramsis.profiles.measure.labels import MAX
from ramsis.profiles.measure.sizes import MixedBatches
from ramsis.profiles.model import ProfileSet
from ramsis.profiles.sized import LAWS

_RULE = StopRule()


_MORE = (
    "--accuracy-source", "--threads", "--order", "--percentile", "--min-samples",
    "--max-samples", "--seconds-per-batch", "--max-latency-ms", "--quantiles",
    "--dim", "--tokens", "--inputs", "--size-dim", "--law")
"""Options that only --help-all shows."""


@click.command("measure", cls=Command, more=_MORE,
               headings={"Measuring": "max-violation labels confidence"})
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--out", required=True, metavar="FILE", help="Profile file to write.")
@click.option("--backend", type=click.Choice(tuple(BACKENDS)), default=next(iter(BACKENDS)),
              show_default=True, help="Back end that runs the models.")
@click.option("--batches", type=BATCH_SIZES, default=",".join(map(str, BATCHES)),
              show_default=True, metavar="LIST", help="Batch sizes: 1,2,4 or 1:32 or 1:32:4.")
@click.option("--accuracy", metavar="FILE",
              help="Accuracies by model, as for import.\nNeeded, except with --labels, and for "
                   "torchvision, which publishes them.")
@click.option("--labels", metavar="FILE",
              help="Labelled samples, for accuracies and confidences.\nAn .npz with an array for "
                   "each input, `label`, and optionally `group`.")
@click.option("--confidence", metavar="max|margin|OUTPUT", default=MAX, show_default=True,
              help="Confidence of an answer.\nThe largest probability, the margin of the "
                   "largest score to the runner-up, or an output.")
@click.option("--accuracy-source", metavar="TEXT", help="Source of the accuracies, stored in the "
                                                        "file.")
@click.option("--name", help="Name of the profile set.  [default: that of FILE]")
@click.option("--device", type=DEVICE, default="cpu", show_default=True,
              help="Where to measure.\nA MIG-UUID is an instance of a GPU (`nvidia-smi -L`).")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True,
              help="Threads of one run.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True,
              help="Measure all models interleaved in random order, in one warm process; or one "
                   "after the other.")
@click.option("--percentile", type=click.Choice(tuple(PERCENTILES)), default=_RULE.percentile,
              show_default=True, help="Percentile that must be stable.")
@click.option("--relative-error", type=float, default=_RULE.relative_error, show_default=True,
              help="Stated error at which the percentile counts as stable, a fraction.")
@click.option("--min-samples", type=click.IntRange(min=1), default=_RULE.min_samples,
              show_default=True, help="Fewest samples of a batch size.")
@click.option("--max-samples", type=click.IntRange(min=1), default=_RULE.max_samples,
              show_default=True, help="Most samples of a batch size.")
@click.option("--max-violation", type=float, default=None, metavar="V",
              help="Take as many samples of each batch size as a budget of violations of V needs: "
                   "0.01 is 1 %, and needs 1005.")
@click.option("--seconds-per-batch", type=float, default=_RULE.seconds_per_batch,
              show_default=True,
              help="Running time after which a batch size ends, once it has --min-samples.")
@click.option("--max-latency-ms", type=float, default=None,
              help="Latency at which a model's batch sizes end.")
@click.option("--quantiles", type=click.IntRange(2, 100_000), default=128, show_default=True,
              help="Size of the quantile sketches.")
@click.option("--dim", "dimensions", type=DIMENSION, multiple=True, metavar="NAME=SIZE",
              help="Size of an ONNX model's named dimension; repeatable.")
@click.option("--tokens", type=click.IntRange(min=1), default=128, show_default=True,
              help="Length of the texts for transformers.")
@click.option("--inputs", metavar="MODULE:FUNCTION",
              help="Function from a batch size to a model's input.")
@click.option("--size-points", type=SIZE_POINTS, default=None, metavar="LIST",
              help="Measure each batch size at these sizes of the requests: 8,32,128,256.\n"
                   "Tokens for transformers; a dimension of no fixed size for ONNX. Functions "
                   "get the list of sizes.")
@click.option("--size-dim", metavar="NAME",
              help="Dimension of an ONNX model that is the size.  [default: the only one of no "
                   "fixed size]")
@click.option("--law", type=click.Choice(LAWS),
              help="What the time of a batch depends on: the longest size, or the total.  "
                   "[default: measured on batches of different sizes]")
@click.option("--restart", is_flag=True, help="Discard the results of an interrupted measurement.")
@json_option
def measure_command(models: tuple[str, ...], out: str, **options: Any) -> None:
    """Run models and record their warm latencies per batch size.

    MODEL is an .onnx file; a torchvision classifier by its name (--backend torchvision); a BERT
    (bert-tiny, -mini, -small, -medium, -base) or the folder of a configuration (--backend
    transformers); a function as module:function, called with the batch size (--backend
    callable); or the URL of a model on another server, such as a Triton (--backend upstream:
    http://HOST:PORT/v2/models/NAME). Weights of named models are random, and nothing is
    downloaded. A model is called by its file without the ending, the last part of its URL, or its
    function: mine:small is small.

    Each batch size is run until its percentile is stable or its time is up; the error that remains
    is stated. What is done is kept in FILE.runs (FILE.partial with --order model), so that the
    same command goes on after an interruption.

    \b
    Examples:
      $ ramsis profile measure mine:small --backend callable --accuracy accuracy.json --out m.json
    """
    settings = _settings(options)
    cells = len(settings.batches) * (len(settings.size_points) or 1)
    with progress("measuring", len(models) * cells) as advance:
        profile = measure_profile(
            models, settings, name=options["name"] or Path(out).stem, accuracy=options["accuracy"],
            accuracy_source=options["accuracy_source"], labels=options["labels"],
            confidence=options["confidence"], out=out, restart=options["restart"],
            observer=_Progress(advance, cells),
        )
    percentile = settings.stop.percentile
    rows = (_rows_by_size if settings.size_points else _rows)(profile, percentile)
    if options["as_json"]:
        print_json(rows, name=profile.name, file=out, percentile=percentile,
                   notes=profile.measurement["notes"])
        return
    print_rows(_columns(percentile, by_size=bool(settings.size_points)), rows)
    for line in (*_laws(profile),
                 *(profile.confidences.summary() if profile.confidences else ())):
        say(line)
    click.echo(f"{out}: written; models: {len(profile.models)}, batch profiles: {len(rows)}")


def _settings(values: dict[str, Any]) -> MeasureSettings:
    stop = {name: values[name] for name in ("percentile", "relative_error", "min_samples",
                                            "max_samples", "seconds_per_batch")}
    if values["max_latency_ms"] is not None:
        stop["max_latency_ms"] = values["max_latency_ms"]
    rule = StopRule(**stop)
    if values["max_violation"] is not None:
        rule = rule.supporting(values["max_violation"])
    options = Options(values["threads"], values["device"], dict(values["dimensions"]),
                      values["tokens"], values["inputs"], values["size_dim"])
    return MeasureSettings(values["backend"], values["batches"], rule,
                           values["quantiles"], options, values["order"],
                           values["size_points"] or (), values["law"])


class _Progress(Observer):
    """Progress bar over all batch sizes; plain lines without a terminal and for failures."""

    def __init__(self, advance: Callable[[], object], batches: int) -> None:
        self._advance, self._batches, self._warned = advance, batches, False
        self._finished: dict[str, int] = {}

    def batch_finished(self, model: str, batch: int) -> None:
        self._finished[model] = self._finished.get(model, 0) + 1
        self._advance()

    def model_finished(self, model: str, note: str | None) -> None:
        for _ in range(self._batches - self._finished.get(model, 0)):
            self._advance()
        if note:
            click.echo(f"note: {model}: {note}", err=True)
        elif not sys.stderr.isatty():
            click.echo(f"{model}: measured", err=True)

    def model_changed(self, model: str) -> None:
        click.echo(f"note: {model}: its file has changed since the measurement was interrupted, "
                   "and it is measured anew", err=True)

    def foreign_load(self, processors: float) -> None:
        if not self._warned:
            self._warned = True
            click.echo(f"note: others keep {processors:.1f} processors of this machine busy; "
                       "latencies measured beside them are not the models' own", err=True)


def _columns(percentile: str, *, by_size: bool) -> list[Column]:
    if by_size:
        return [Column("model", "model"), Column("size", "size", "d"),
                Column("batch", "batch", "d"), Column("mean_ms", "mean ms", "#.4g"),
                Column(f"{percentile}_ms", f"{percentile} ms", "#.4g")]
    return [Column("model", "model"), Column("batch", "batch", "d"), Column("n", "samples", "d"),
            Column("mean_ms", "mean ms", "#.4g"),
            Column(f"{percentile}_ms", f"{percentile} ms", "#.4g"),
            Column("relative_error", "± error", ".1%")]


def _rows_by_size(profile: ProfileSet, percentile: str) -> list[dict[str, Any]]:
    """Return a row for each measured cell of count and size."""
    rows = []
    for model in profile.models:
        assert model.sized is not None
        mean_ms, percentile_ms = (model.sized.measured_ms(name) for name in ("mean", percentile))
        rows += [{"model": model.name, "size": size, "batch": count,
                  "mean_ms": float(mean_ms[i, j]), f"{percentile}_ms": float(percentile_ms[i, j])}
                 for j, size in enumerate(model.sized.sizes)
                 for i, count in enumerate(model.sized.counts) if np.isfinite(mean_ms[i, j])]
    return rows


def _laws(profile: ProfileSet) -> Iterator[str]:
    """Yield the law of batches of different sizes, a line for each model with sizes."""
    laws = profile.measurement.get("laws", {})
    for model in profile.models:
        if model.name in laws:
            note = laws[model.name]
            mixed = MixedBatches(tuple(note["sizes"]), note["mixed_ms"], note["padded_ms"],
                                 note["packed_ms"])
            yield f"{model.name}: {mixed.summary()}"
        elif model.sized is not None:
            yield f"{model.name}: law {model.sized.law}, not measured"


def _rows(profile: ProfileSet, percentile: str) -> list[dict[str, Any]]:
    return [
        {"model": model.name, "batch": batch.batch, "n": batch.n, "mean_ms": batch.mean_ms,
         f"{percentile}_ms": batch.statistic_ms(percentile),
         "relative_error": batch.relative_error}
        for model in profile.models for batch in model.batches
    ]
