"""Section on a profile set."""

from __future__ import annotations

from typing import Any, cast

from ramsis.errors import InvalidValueError
from ramsis.profiles import STATISTICS, LatencyTable, ProfileSet, Statistic, pareto_front
from ramsis.profiles.checks import check_profile
from ramsis.report.chart import Axis, Series
from ramsis.report.page.parts import Note, PageTable, Part, Section, curves
from ramsis.tables import Column, with_values

_MOST_FRAMES = 24  # batch sizes of the slider, evenly spaced
_MOST_LINES = 24  # models by batch size
_MOST_FINDINGS = 20


def profile_section(profile: ProfileSet, source: str) -> Section:
    """Return the section on a profile: accuracy against latency, latency by batch, oddities."""
    statistic = _statistic(profile)
    sizes = sorted({item.batch for model in profile.models for item in model.batches})
    table = profile.latency_table(statistic, sizes[-1])
    front = pareto_front(table)
    findings = check_profile(profile)
    parts: list[Part] = [
        _models(profile, table, front, statistic), _trade_off(table, sizes, statistic),
        _by_batch(profile, table.select(front[:_MOST_LINES]), statistic)]
    if findings:
        parts.append(PageTable("What is odd in it, though allowed", [
            Column("kind", "kind"), Column("model", "model"), Column("batch", "batch", "d"),
            Column("text", "what")], [
            {"kind": finding.kind, "model": finding.model, "batch": finding.batch,
             "text": finding.message} for finding in findings], _MOST_FINDINGS))
    else:
        parts.append(Note("The checks of profiles found nothing odd in it."))
    measured = profile.measurement or {}
    terms = [("profile", profile.name), ("models", f"{len(profile.models)}, of which "
             f"{len(front)} are on the front of accuracy against latency at batch 1"),
             ("batch sizes", f"{sizes[0]} to {sizes[-1]}"), ("statistic shown", statistic),
             *((str(key), str(value)) for key, value in measured.items()
               if isinstance(value, str | int | float))]
    return Section("Profile", profile.name, terms, parts,
                   (f"ramsis profile plot {source} --out figure.svg",),
                   (("file", source), ("fingerprint", profile.fingerprint)), "What was measured",
                   verdict=_verdict(profile, table, front, statistic),
                   models={model.name: model.accuracy for model in profile.models})


def _verdict(
    profile: ProfileSet, table: LatencyTable, front: tuple[str, ...], statistic: str
) -> list[str]:
    """Return a sentence on the range of accuracy and latency of the Pareto front."""
    kept = table.select(front)
    fast, best = kept.latency_ms[:, 0].argmin(), kept.accuracy.argmax()
    return [f"{len(front)} of {len(profile.models)} models are worth using: from "
            f"{kept.models[fast]} ({kept.accuracy[fast]:.4f} accuracy, "
            f"{kept.latency_ms[fast, 0]:.4g} ms {statistic}) to {kept.models[best]} "
            f"({kept.accuracy[best]:.4f} accuracy, {kept.latency_ms[best, 0]:.4g} ms)"]


def _statistic(profile: ProfileSet) -> Statistic:
    """Return the first statistic of latency that all batches have."""
    statistics = profile.statistics
    if not statistics:
        raise InvalidValueError("no statistic that all batches have",
                                where=f"profile {profile.name}", allowed="one of "
                                + ", ".join(STATISTICS))
    return cast(Statistic, next(statistic for statistic in STATISTICS if statistic in statistics))


def _models(
    profile: ProfileSet, table: LatencyTable, front: tuple[str, ...], statistic: str
) -> PageTable:
    shown = [b for b in (1, 4, 16, 64) if b <= table.max_batch]
    rows: list[dict[str, Any]] = []
    for model, latency in zip(profile.models, table.latency_ms, strict=True):
        rows.append({"name": model.name, "accuracy": model.accuracy,
                     "front": "yes" if model.name in front else "",
                     **{f"b{b}": float(latency[b - 1]) for b in shown},
                     "memory_mb": model.memory_mb, "load_ms": model.load_ms})
    rows.sort(key=lambda row: row["b1"])
    optional = [Column("memory_mb", "memory (MB)", ".4g"),
                Column("load_ms", "to load (ms)", ".4g")]
    return PageTable("Models, fastest first", [
        Column("name", "model"), Column("accuracy", "accuracy", ".4f"), Column("front", "front"),
        *(Column(f"b{b}", f"{statistic} at {b} (ms)", ".4g") for b in shown),
        *with_values(optional, rows)], rows)


def _trade_off(table: LatencyTable, sizes: list[int], statistic: str) -> Part:
    """Return the figure of accuracy over latency, with a frame for each batch size."""
    step = -(-len(sizes) // _MOST_FRAMES)
    frames = {}
    for batch in sizes[::step]:
        front = set(pareto_front(table, batch))
        groups: dict[bool, list[tuple[float, float, str]]] = {True: [], False: []}
        for name, accuracy, latency in zip(table.models, table.accuracy.tolist(),
                                           table.latency_ms[:, batch - 1].tolist(), strict=True):
            groups[name in front].append((latency, accuracy, name))
        frames[str(batch)] = [_group("Pareto front", sorted(groups[True]), front=True),
                              _group("dominated", sorted(groups[False]), front=False)]
    return curves("Accuracy against latency", Axis(f"{statistic} latency (ms)", log=True),
                  Axis("accuracy"), frames, "batch size")


def _group(name: str, points: list[tuple[float, float, str]], *, front: bool) -> Series:
    return Series(name, [p[0] for p in points], [p[1] for p in points],
                  text=[p[2] for p in points], steps=front, named=front,
                  draw="both" if front else "points")


def _by_batch(profile: ProfileSet, table: LatencyTable, statistic: str) -> Part:
    """Return the figure of the front's latency, at the measured sizes."""
    sizes = {model.name: [batch.batch for batch in model.batches] for model in profile.models}
    series = []
    for name, row in zip(table.models, table.latency_ms, strict=True):
        measured = [b for b in sizes[name] if b <= table.max_batch]
        series.append(Series(name, measured, [float(row[b - 1]) for b in measured]))
    return curves("Latency of a batch, models on the front", Axis("batch size", log=True,
                  whole=True), Axis(f"{statistic} latency (ms)", log=True), series, models=True)
