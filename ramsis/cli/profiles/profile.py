"""``ramsis profile``: show and check profile files, and import measurements of other programs."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np

from ramsis import report
from ramsis.cli.options.command import Command, CommandGroup
from ramsis.cli.options.param_types import FIGURE, MODELS, OUT_FILE, complete_profiles
from ramsis.cli.output.rows import (
    Column,
    json_option,
    print_json,
    print_rows,
    say,
    table_options,
    wide,
)
from ramsis.cli.profiles.measure import measure_command
from ramsis.errors import InvalidValueError, OutputError, printable
from ramsis.profiles import STATISTICS, LatencyTable, Origin, ProfileSet, Statistic, load, save
from ramsis.profiles.checks import Finding, check_profile
from ramsis.profiles.importers import FORMATS, Given, import_profile
from ramsis.profiles.sized import LAWS, Law, SizedTimes


@click.command("plot", cls=Command, short_help="Draw accuracy against latency.")
@click.argument("source", metavar="FILE|NAME", shell_complete=complete_profiles)
@click.option("--out", type=FIGURE, required=True, metavar="FIG",
              help="Figure to write: .png, .pdf or .svg (extra 'plot').")
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True,
              help="Batch size at which models are compared.")
@click.option("--statistic", type=click.Choice(STATISTICS), default=STATISTICS[0],
              show_default=True, help="Latency statistic.")
@click.option("--step", type=click.FloatRange(min=0, max=1, min_open=True),
              help="Also show interpolated models of the front, at this step of accuracy; 0.005 "
                   "is half a percent.")
def plot_command(source: str, out: Path, batch: int, statistic: Statistic,
                 step: float | None) -> None:
    """Draw accuracy against latency with the Pareto front, and latency by batch size.

    FILE|NAME is a profile file or a shipped profile set. Models that another one beats at this
    batch size are grey.

    \b
    Examples:
      $ ramsis profile plot digits-cpu --out models.png
      $ ramsis profile plot digits-cpu --out models.svg --batch 8 --step 0.005
    """
    profile = load(source)
    front = report.plot_profile(profile, out, batch, statistic, step)
    click.echo(f"{out}: written; models: {len(profile.models)}, on the front: {len(front)}")


_WARNINGS = 3
"""Of each kind that are shown after an import."""
_MARKS = {Origin.MEASURED: "", Origin.PADDED: "*", Origin.INTERPOLATED: "~",
          Origin.EXTRAPOLATED: "+", Origin.SMOOTHED: "="}
_SHOWN = 6  # batch sizes without --wide
_LEGEND = ("* a larger measured batch is faster, so requests are padded up to it",
           "~ on the line between two measured batches",
           "+ beyond the largest measured batch",
           "= pooled with neighbours from which it differs within the error of measurement")


@click.group("profile", cls=CommandGroup)
def profile() -> None:
    """Measure models, look into latency profiles, and import them."""


profile.add_command(measure_command)
profile.add_command(plot_command)


@profile.command("check", short_help="Check a profile, by its file or name.")
@click.argument("source", metavar="FILE|NAME", shell_complete=complete_profiles)
@json_option
def check_command(source: str, as_json: bool) -> None:
    """Check a profile file, or a shipped profile set by its NAME.

    A file that breaks the format is an error. Warnings are listed, one line each: latency that
    falls with the batch size, outliers, few samples, gaps, dominated models. Policies can be made
    in spite of them.

    \b
    Examples:
      $ ramsis profile check digits-cpu
      $ ramsis profile check digits-cpu --json
    """
    profile_set = load(source)
    findings = check_profile(profile_set)
    if as_json:
        rows = [{"kind": item.kind, "model": item.model, "batch": item.batch,
                 "message": item.message} for item in findings]
        print_json(rows, name=profile_set.name)
        return
    for item in findings:
        say(str(item))
    for line in _summary(profile_set):
        say(line)
    click.echo(f"{profile_set.name}: valid; {_counts(profile_set, findings)}")


@profile.command("show", short_help="Show latencies of all models by batch size.")
@click.argument("source", metavar="FILE|NAME", shell_complete=complete_profiles)
@click.option("--statistic", type=click.Choice(STATISTICS), default=STATISTICS[0],
              show_default=True, help="Latency statistic.")
@click.option("--max-batch", type=click.IntRange(1, 10_000), default=32, show_default=True,
              help="Largest batch size.")
@table_options
def show_command(source: str, statistic: Statistic, max_batch: int, as_json: bool) -> None:
    """Show the latency in ms of every model by batch size, as policies see it.

    FILE|NAME is a profile file or a shipped profile set. Six batch sizes are shown, all of them
    with --wide. Entries that were not measured at their own batch size are marked.

    \b
    Examples:
      $ ramsis profile show digits-cpu
      $ ramsis profile show digits-cpu --statistic mean --max-batch 8
      $ ramsis profile show digits-cpu --json
    """
    profile_set = load(source)
    table = profile_set.latency_table(statistic, max_batch)
    if as_json:
        sized = {"sized": _rows_by_size(profile_set, statistic)} if any(
            model.sized for model in profile_set.models) else {}
        print_json(_rows(table), name=profile_set.name, statistic=table.statistic, **sized)
        return
    click.echo(printable(f"{profile_set.name}: {statistic} latency in ms by batch size"))
    batches = range(1, table.max_batch + 1) if wide() else _some(table.max_batch)
    print_rows(
        [Column("model", "model"), Column("accuracy", "accuracy", ".4f"),
         *(Column(str(batch), f"{batch} ", "s") for batch in batches)],
        [{"model": name, "accuracy": float(table.accuracy[row]),
          **{str(batch): _cell(table, row, batch) for batch in batches}}
         for row, name in enumerate(table.models)])
    marks = {_MARKS[Origin(int(table.origin[row, batch - 1]))]
             for row in range(len(table.models)) for batch in batches}
    for line in _LEGEND:
        if line[0] in marks:
            click.echo(line)
    for model in profile_set.models:
        if model.sized is not None:
            _print_sized(model.name, model.sized, statistic)
    for line in _summary(profile_set):
        say(line)


@profile.command(
    "import", more=("--metric", "--instance", "--processes", "--model-name"),
    headings={"Measurements": "format column unit batch model-name metric law instance "
                              "processes accuracy accuracy-unit confidences models"})
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True,
                shell_complete=complete_profiles)
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="Profile file to write.")
@click.option("--format", "format_name", type=click.Choice(("auto", *FORMATS)), default="auto",
              show_default=True, metavar="NAME",
              help="Layout of SOURCE: `ramsis help profiles`.")
@click.option("--models", type=MODELS, metavar="A,B,C", help="Models to keep, in this order.")
@click.option("--accuracy", metavar="FILE",
              help="Accuracies by model, as JSON or CSV.\nCSV has the columns model and "
                   "accuracy_percent or accuracy_fraction; timm's results are read too.")
@click.option("--confidences", metavar="FILE",
              help="Correctness and confidence of each model on samples, as CSV.\nIts columns are "
                   "sample, model, correct, confidence, and optionally group.")
@click.option("--name", help="Name of the profile set.  [default: that of SOURCE]")
@click.option("--batch", "batches", multiple=True, metavar="N|PATTERN=N",
              help="Batch size, where files do not state it.\nOf all files, or of those whose "
                   "path in SOURCE fits the pattern, as 'b4/*=4'. Can be repeated.")
@click.option("--model-name", "model_names", multiple=True, metavar="NAME|PATTERN=NAME",
              help="Name of the model, as --batch.  [default: stated in the file, or its name]")
@click.option("--metric", metavar="NAME",
              help="Histogram of service times, if a Prometheus file has several.")
@click.option("--column", "columns", multiple=True, metavar="FIELD=NAME",
              help="Column of a table that holds a field, as batch=batch_size.\nFields are model, "
                   "batch, accuracy, n, latency, mean, p50, p90, p95, p99, std, min, max, size, "
                   "total. Can be repeated.  [default: told by the headings]")
@click.option("--unit", type=click.Choice(("ns", "us", "ms", "s")),
              help="Unit of the times of a table, if no heading states it.")
@click.option("--accuracy-unit", type=click.Choice(("percent", "fraction")),
              help="Unit of accuracies.  [default: that of the heading, or by the values]")
@click.option("--law", type=click.Choice(LAWS),
              help="What times by size depend on: the longest size, or the total.\n"
                   "[default: told by a column of total sizes, else padded]")
@click.option("--instance", metavar="NAME",
              help="Kind of instance, if a table has several: 2g.20gb, or its slices.")
@click.option("--processes", type=click.IntRange(1), metavar="N",
              help="Processes that shared the instance.  [default: 1]")
def import_command(
    sources: tuple[str, ...], out: Path, format_name: str, models: list[str] | None,
    accuracy: str | None, confidences: str | None, name: str | None, batches: tuple[str, ...],
    model_names: tuple[str, ...], metric: str | None, columns: tuple[str, ...], unit: str | None,
    accuracy_unit: str | None, law: Law | None, instance: str | None, processes: int | None,
) -> None:
    """Make a profile file of another program's measurements.

    SOURCE is a table of models, batch sizes and latencies, in CSV, TSV, Markdown or JSON, with
    units in its headings (table); a table of models on instances of GPUs (instances); a file of
    a tool such as AIPerf, perf_analyzer, trtexec, MLPerf's loadgen or timm; or several files, or a
    folder of files, of one run each.

    What they hold tells the format, and a line says what was recognised. `ramsis help profiles`
    lists the formats. Several models need accuracies, from the sources or --accuracy. What
    cascades need comes by --confidences; SOURCE may then also be a profile file or a shipped
    profile set.

    \b
    Examples:
      $ ramsis profile import statistics.csv --out statistics.json
      $ ramsis profile import benchmark.csv --column batch=items --unit us --out benchmark.json
      $ ramsis profile import quantiles.csv --accuracy accuracy.json --out quantiles.json
      $ ramsis profile import latencies.csv --format long-csv --out latencies.json
      $ ramsis profile import samples --accuracy accuracy.json --models small,large --out two.json
      $ ramsis profile import perf_b1.csv perf_b4.csv perf_b8.csv --out perf.json
      $ ramsis profile import runs --batch '*b1.json=1' --batch '*b4.json=4' \\
          --model-name small --accuracy accuracy.json --out runs.json
      $ ramsis profile import statistics.csv --confidences samples.csv --out cascade.json
    """
    hints = Given(
        {pattern: _batch_size(value) for pattern, value in _patterns("--batch", batches).items()},
        _patterns("--model-name", model_names), metric,
        _fields(columns), unit, accuracy_unit, law, instance, processes)
    profile = import_profile(sources if len(sources) > 1 else sources[0], format_name, models,
                             accuracy, name, hints, confidences)
    if os.path.exists(out) and any(
            os.path.exists(source) and os.path.samefile(source, out) for source in sources):
        raise OutputError("is the file that is imported", where="--out", value=str(out),
                          allowed="another file")
    save(profile, out)
    notes = profile.measurement.get("notes")
    for line in notes if isinstance(notes, list) else ():
        click.echo(printable(f"note: {line}"), err=True)
    for line in _summary(profile):
        click.echo(printable(f"note: {line}"), err=True)
    findings = check_profile(profile)
    _warn(findings, out)
    click.echo(f"{out}: written; {_counts(profile, findings)}")


def _warn(findings: list[Finding], path: Path) -> None:
    """Print the first few warnings of each kind, and the number of further ones."""
    counts: Counter[str] = Counter()
    for item in findings:
        counts[item.kind] += 1
        if counts[item.kind] <= _WARNINGS:
            click.echo(f"warning: {item}", err=True)
    more = ", ".join(f"{count - _WARNINGS} [{kind}]" for kind, count in counts.items()
                     if count > _WARNINGS)
    if more:
        click.echo(f"warning: and {more} more; all of them: ramsis profile check {path}", err=True)


def _patterns(option: str, values: tuple[str, ...]) -> dict[str, str]:
    """Parse a repeated ``PATTERN=VALUE`` or ``VALUE`` option into a mapping by pattern."""
    by_pattern: dict[str, str] = {}
    for text in values:
        pattern, _, value = text.rpartition("=")
        pattern = pattern or "*"
        if not value or pattern in by_pattern:
            raise InvalidValueError("not a value for files, each once", where=option, value=text,
                                    allowed="VALUE, or PATTERN=VALUE")
        by_pattern[pattern] = value
    return by_pattern


def _fields(values: tuple[str, ...]) -> dict[str, str]:
    """Parse a repeated ``FIELD=NAME`` option into a mapping by field."""
    by_field: dict[str, str] = {}
    for text in values:
        name, _, column = text.partition("=")
        if not column.strip() or name.strip() in by_field:
            raise InvalidValueError("not a column for a field, each once", where="--column",
                                    value=text, allowed="FIELD=NAME, as batch=batch_size")
        by_field[name.strip()] = column.strip()
    return by_field


def _batch_size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 6 and int(text) > 0):
        raise InvalidValueError("not a batch size", where="--batch", value=text,
                                allowed="a whole number >= 1")
    return int(text)


def _summary(profile_set: ProfileSet) -> tuple[str, ...]:
    """Describe the confidences of a set in a line or two; no lines without any."""
    return profile_set.confidences.summary() if profile_set.confidences else ()


def _counts(profile_set: ProfileSet, findings: list[Finding]) -> str:
    measured = sum(len(model.batches) for model in profile_set.models)
    return (f"models: {len(profile_set.models)}, batch profiles: {measured}, "
            f"warnings: {len(findings)}")


def _rows(table: LatencyTable) -> list[dict[str, Any]]:
    """Return the rows of ``show --json``, one per model and batch size."""
    return [
        {"model": name, "accuracy": float(table.accuracy[i]), "batch": batch + 1,
         "latency_ms": float(table.latency_ms[i, batch]),
         "origin": Origin(int(table.origin[i, batch])).name.lower(),
         "run_as": int(table.run_as[i, batch])}
        for i, name in enumerate(table.models)
        for batch in range(table.max_batch)
    ]


def _rows_by_size(profile_set: ProfileSet, statistic: str) -> list[dict[str, Any]]:
    """Return the measured times by size, one row for each model, count and size."""
    return [{"model": model.name, "law": model.sized.law, "unit": model.sized.unit,
             "batch": count, "size": size, "latency_ms": float(value)}
            for model in profile_set.models
            if model.sized is not None and statistic in model.sized.statistics
            for count, row in zip(model.sized.counts, model.sized.measured_ms(statistic),
                                  strict=True)
            for size, value in zip(model.sized.sizes, row, strict=True) if np.isfinite(value)]


def _print_sized(name: str, sized: SizedTimes, statistic: str) -> None:
    """Print the measured times of models by batch size and size of the requests."""
    if statistic not in sized.statistics:
        click.echo(f"{name}: times by size have no {statistic}; they have "
                   f"{', '.join(sized.statistics)}")
        return
    of = "the longest" if sized.law == "padded" else "the total"
    click.echo(f"{name}: {statistic} in ms by batch size and {sized.unit}, {sized.law} (a batch "
               f"takes as long as {of} size needs)")
    print_rows(
        [Column("count", "", "d"), *(Column(str(size), str(size), "s") for size in sized.sizes)],
        [{"count": count, **{
            str(size): "-" if np.isnan(value) else f"{value:#.4g}".rstrip(".")
            for size, value in zip(sized.sizes, row, strict=True)}}
         for count, row in zip(sized.counts, sized.measured_ms(statistic), strict=True)])


def _cell(table: LatencyTable, row: int, batch: int) -> str:
    """Format a latency with four digits and a mark of its origin."""
    value = table.latency_ms[row, batch - 1]
    digits = f"{value:.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")
    return digits + (_MARKS[Origin(int(table.origin[row, batch - 1]))] or " ")


def _some(max_batch: int) -> list[int]:
    """Return a few batch sizes in roughly geometric progression.

    >>> _some(32), _some(8)
    ([1, 2, 4, 8, 16, 32], [1, 2, 3, 4, 5, 8])
    """
    sizes = {round(max_batch ** (i / (_SHOWN - 1))) for i in range(_SHOWN)}
    unused = (size for size in range(1, max_batch + 1) if size not in sizes)
    return sorted(sizes.union(islice(unused, _SHOWN - len(sizes))))
