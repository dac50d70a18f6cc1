"""Measurement of a profile set: loads, samples and records all models."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ramsis.arrays import BoolArray, FloatArray
from ramsis.errors import InputFileError, InvalidValueError, check_known, whole
from ramsis.plugins import trust
from ramsis.profiles.confidences import Confidences
from ramsis.profiles.file import save
from ramsis.profiles.importers.accuracy import read_accuracy
from ramsis.profiles.measure.backends import (
    BACKENDS,
    Backend,
    LoadedModel,
    Options,
    Published,
    open_backend,
)
from ramsis.profiles.measure.environment import MUCH, foreign_load, hardware, spells_of, versions
from ramsis.profiles.measure.labels import MAX, LabelledSamples
from ramsis.profiles.measure.resume import KeptRuns, check_writable, partial_path, unfinished
from ramsis.profiles.measure.sampling import (
    CONFIDENCE,
    Runnable,
    Sampled,
    StopRule,
    sample_batches,
    sample_interleaved,
)
from ramsis.profiles.measure.sizes import (
    AtSize,
    MixedBatches,
    key_of,
    mixed_batches,
    sized_times,
)
from ramsis.profiles.model import ModelProfile, ProfileSet
from ramsis.profiles.sized import MAX_SIZE, Law, SizedTimes
from ramsis.profiles.values import placed

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""The batch sizes that are measured when none are named."""

ORDERS = ("random", "model")
"""All models interleaved in a random order, in one warm process; or one model after the other."""

_BACKEND = next(iter(BACKENDS))


@dataclass(frozen=True)
class MeasureSettings:
    """Settings of a measurement of latencies."""

    backend: str = _BACKEND  # A key of :data:`~ramsis.profiles.measure.backends.BACKENDS`
    batches: tuple[int, ...] = BATCHES  # batch sizes, 1 among them; kept in ascending order
    stop: StopRule = field(default_factory=StopRule)  # when a batch size, and a model, is finished
    quantiles: int = 128  # size of the quantile sketches, >= 2
    # threads, device, and what else back ends can be told
    options: Options = field(default_factory=Options)
    order: str = ORDERS[0]  # one of :data:`ORDERS`
    # sizes of requests to measure each batch size at, two or more; none: requests have no size
    size_points: tuple[int, ...] = ()
    law: Law | None = None  # of batches of different sizes; by default measured

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", tuple(sorted(set(self.batches))))
        if not self.batches or self.batches[0] != 1:
            raise InvalidValueError("batch size 1 is not among them", where="batches",
                                    value=list(self.batches),
                                    allowed="whole numbers from 1, with 1")
        points = tuple(sorted(set(self.size_points)))
        object.__setattr__(self, "size_points", points)
        for point in points:
            whole(1, MAX_SIZE).check(size_points=point)
        if len(points) == 1:
            raise InvalidValueError("one size, where times by size need two", where="size_points",
                                    value=list(points), allowed="two or more sizes, or none")
        if self.law is not None and not points:
            raise InvalidValueError("a law without sizes", where="law", value=self.law,
                                    allowed="--size-points beside it")
        if points and self.options.size_dimension is None:
            object.__setattr__(self, "options", replace(self.options, size_dimension=""))
        check_known("unknown order", self.order, ORDERS, "order")
        whole(2).check(quantiles=self.quantiles)
        whole(1).check(threads=self.options.threads, tokens=self.options.tokens)


class Observer:
    """Observer of a measurement's progress; the base class ignores all events."""

    def batch_finished(self, model: str, batch: int) -> None:
        """Observe that a batch size of a model has its samples."""

    def model_finished(self, model: str, note: str | None) -> None:
        """Observe that a model is finished; ``note`` says why batch sizes are missing."""

    def model_changed(self, model: str) -> None:
        """Observe that a model begins anew, as its file has changed since the interruption."""

    def foreign_load(self, processors: float) -> None:
        """Observe that other work keeps processors busy during the measurement."""


def measure_profile(
    models: Sequence[str],
    settings: MeasureSettings | None = None,
    *,
    name: str = "measured",
    accuracy: str | os.PathLike[str] | Mapping[str, float] | None = None,
    accuracy_source: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    confidence: str = MAX,
    out: str | os.PathLike[str] | None = None,
    restart: bool = False,
    observer: Observer | None = None,
) -> ProfileSet:
    """Run models and record their warm latencies per batch size.

    Parameters
    ----------
    models : sequence of str
        Models as the back end names them: paths, names, or ``module:function``.
    settings : MeasureSettings, optional
    name : str
        Name of the profile set.
    accuracy : path or mapping, optional
        Accuracies by the models' names in the profile: a file as
        :func:`~ramsis.profiles.importers.accuracy.read_accuracy` takes, or fractions in [0, 1].
        They go before published ones that the back end knows.
    accuracy_source : str, optional
        Source of the accuracies, stored in the profile.
    labels : path, optional
        Labelled samples as :class:`~ramsis.profiles.measure.labels.LabelledSamples` reads them.
        They state accuracies that ``accuracy`` does not, and confidences.
    confidence : str
        Confidence of an answer: ``"max"``, the largest probability; ``"margin"``, the difference
        between the largest score and the second largest; or the name of an output.
    out : path, optional
        File to write. Finished models (with the order ``model``) are kept in ``out.partial``, or
        all runs in ``out.runs``; the same call resumes from there after an interruption. A model
        whose file has changed since is measured from the beginning.
    restart : bool
        Discard the kept results of an interrupted measurement.
    observer : Observer, optional
        Object whose methods are called to report the progress.

    Raises
    ------
    InvalidValueError
        When a model or back end is unknown, a library is missing, a setting is out of range, or
        an interrupted measurement had other settings.
    InputFileError
        When an accuracy is missing or cannot be read, labelled samples do not fit the models or
        are too few, or no model could be measured.
    OutputError
        When the file cannot be written.
    """
    chosen = settings or MeasureSettings()
    trust(*models, *filter(None, [chosen.options.inputs]))  # the caller names them
    backend = open_backend(chosen.backend, chosen.options)
    by_name = _by_name(backend, models)
    answers = None if labels is None else _answered(backend, by_name, LabelledSamples.read(labels),
                                                    confidence, chosen)
    accuracies = _accuracies(backend, by_name, accuracy, accuracy_source,
                             {} if answers is None else answers.published)
    record = _Record(
        name, {**hardware(chosen.options.threads), **backend.hardware},
        _description(chosen, backend), accuracies,
        None if answers is None else answers.confidences(
            {key: item.accuracy for key, item in accuracies.items()}),
    )
    interleaved = chosen.order == ORDERS[0]
    watched = observer or Observer()
    kept = KeptRuns(out, record.hardware, record.description, {
        key_of(key, size): model for key, model in by_name.items()
        for size in chosen.size_points} or by_name)
    if out is not None:
        check_writable(out)
        if restart:
            partial_path(out).unlink(missing_ok=True)
            kept.discard()
        if partial_path(out).exists():
            record.go_on_from(
                unfinished(partial_path(out), record.hardware, record.description))
        kept.go_on(watched.model_changed)
    record.watch(0.0, watched)
    missing = {key: model for key, model in by_name.items() if key not in record.models}
    for key in by_name.keys() - missing.keys():
        watched.model_finished(key, record.notes.get(key))
    groups = [missing] if interleaved else [{key: model} for key, model in missing.items()]
    for group in groups:
        for key in record.measured(group, backend, chosen, watched, kept):
            record.watch(chosen.options.threads, watched)
            if out is not None and record.models and not interleaved:
                save(record.profile_set(record.models), partial_path(out))
            watched.model_finished(key, record.notes.get(key))
    if not record.models:
        raise InputFileError(f"no model could be measured: {next(iter(record.notes.values()))}",
                             where=f"model {next(iter(record.notes))}")
    profile = record.profile_set(by_name)
    if out is not None:
        save(profile, out)
        partial_path(out).unlink(missing_ok=True)
        kept.discard()
    return profile


@dataclass
class _Record:
    """State of a measurement in progress: settings, models, and samples so far."""

    name: str
    hardware: dict[str, object]
    description: dict[str, object]
    accuracies: dict[str, Published]
    confidences: Confidences | None
    models: dict[str, ModelProfile] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    input_shapes: dict[str, object] = field(default_factory=dict)
    foreign_load: float = 0.0
    spells: dict[str, Any] | None = None
    mixed: dict[str, MixedBatches] = field(default_factory=dict)  # by model

    def go_on_from(self, before: ProfileSet) -> None:
        """Resume with the models that an interrupted measurement has finished."""
        for model in before.models:
            if model.name in self.accuracies:
                accuracy = self.accuracies[model.name].accuracy
                self.models[model.name] = replace(model, accuracy=accuracy)
                self.input_shapes[model.name] = before.measurement["input_shapes"][model.name]
                if model.name in before.measurement["notes"]:
                    self.notes[model.name] = before.measurement["notes"][model.name]

    def watch(self, own: float, observer: Observer) -> None:
        """Record other load on the machine, and report it if it is high."""
        busy_processors = foreign_load(own)
        if busy_processors is not None:
            self.foreign_load = max(self.foreign_load, round(busy_processors, 2))
            if busy_processors >= MUCH:
                observer.foreign_load(busy_processors)

    def measured(
        self, models: Mapping[str, str], backend: Backend, settings: MeasureSettings,
        observer: Observer, kept: KeptRuns,
    ) -> Iterator[str]:
        """Load models and take their samples; yield the name of each finished model.

        Failures become notes.
        """
        loaded: dict[str, LoadedModel] = {}
        load_ms: dict[str, float] = {}
        for name, model in models.items():
            start = time.perf_counter()
            try:
                loaded[name] = backend.open(model)
            except Exception as error:
                self.notes[name] = "not loaded: " + " ".join(str(error).split())[:300]
                yield name
            load_ms[name] = (time.perf_counter() - start) * 1000
        if "load_ms" not in backend.notes:  # as for functions, which are only imported
            load_ms = {}
        if settings.size_points:
            yield from self._measured_by_size(loaded, load_ms, settings, observer, kept)
            return
        for name, sampled in self._sampled(loaded, settings, observer.batch_finished, kept):
            self._keep(name, sampled, loaded[name], load_ms.get(name))
            yield name

    def _measured_by_size(
        self, loaded: Mapping[str, LoadedModel], load_ms: Mapping[str, float],
        settings: MeasureSettings, observer: Observer, kept: KeptRuns,
    ) -> Iterator[str]:
        """Take the samples of every count and size; yield the name of each finished model."""
        place: dict[str, tuple[str, int]] = {}
        for name, model in loaded.items():
            if model.prepare_sizes is None:
                self.notes[name] = (f"not measured: the back end {settings.backend} makes no "
                                    "inputs by size; onnx, transformers and callable do")
                yield name
                continue
            place |= {key_of(name, size): (name, size) for size in settings.size_points}
        sampled: dict[str, dict[int, Sampled]] = {name: {} for name, _ in place.values()}
        at_size = {key: AtSize(loaded[name], size) for key, (name, size) in place.items()}
        for key, of_size in self._sampled(
                at_size, settings,
                lambda key, batch: observer.batch_finished(place[key][0], batch), kept):
            name, size = place[key]
            sampled[name][size] = of_size
            if len(sampled[name]) == len(settings.size_points):
                self._keep_sized(name, sampled[name], loaded[name], load_ms.get(name), settings)
                yield name

    def _sampled(
        self, models: Mapping[str, Runnable], settings: MeasureSettings,
        finished: Callable[[str, int], object], kept: KeptRuns,
    ) -> Iterator[tuple[str, Sampled]]:
        """Take the samples of models; yield each model's when it is finished."""
        if settings.order == ORDERS[0]:
            for key, sampled, trace in sample_interleaved(
                    models, settings.batches, settings.stop, settings.quantiles, finished,
                    runs=kept.runs, after_round=kept.after_round):
                self.spells = spells_of(trace.keys, trace.latency_ms)
                yield key, sampled
            return
        for key, model in models.items():
            yield key, sample_batches(model, settings.batches, settings.stop, settings.quantiles,
                                      partial(finished, key))

    def _keep_sized(
        self, name: str, sampled: Mapping[int, Sampled], loaded: LoadedModel,
        load_ms: float | None, settings: MeasureSettings,
    ) -> None:
        """Record the times of a model by size, and measure the law of mixed batches."""
        sizes = [size for size, of_size in sorted(sampled.items()) if of_size.batches]
        missing = "; ".join(f"size {size}: {of_size.note}"
                            for size, of_size in sorted(sampled.items()) if of_size.note)
        if len(sizes) < 2:
            self.notes[name] = f"not measured at two sizes or more: {missing}"
            return
        mixed, why = None, None
        try:
            mixed = mixed_batches(loaded, sizes, sampled[sizes[-1]].batches[-1].batch)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            why = f"which law holds was not told, as a mixed batch failed ({reason})"
        if mixed is not None:
            self.mixed[name] = mixed
        law: Law = settings.law or (mixed.law if mixed else "padded")
        times = sized_times(loaded.size_unit, law, {size: sampled[size].batches for size in sizes})
        notes = "; ".join(filter(None, (missing, why)))
        self._keep(name, Sampled(sampled[sizes[-1]].batches, notes or None), loaded, load_ms,
                   times)

    def _keep(
        self, name: str, sampled: Sampled, loaded: LoadedModel, load_ms: float | None,
        sized: SizedTimes | None = None,
    ) -> None:
        """Add a model's measured batches to the profile."""
        if sampled.note:
            self.notes[name] = sampled.note
        if sampled.batches:
            self.input_shapes[name] = loaded.input_shape
            self.models[name] = ModelProfile(
                name, self.accuracies[name].accuracy, sampled.batches,
                loaded.memory_mb and round(loaded.memory_mb, 6),
                None if load_ms is None else round(load_ms, 3), sized,
            )

    def profile_set(self, names: Iterable[str]) -> ProfileSet:
        """Return the profile set of the models measured so far."""
        measurement = {
            **self.description,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "accuracy": {name: self.accuracies[name].source for name in self.models},
            "input_shapes": self.input_shapes,
            "notes": self.notes,
            "foreign_load": self.foreign_load,
        }
        if self.spells is not None:
            measurement["slow_spells"] = self.spells
        if self.mixed:
            measurement["laws"] = {name: mixed.note() for name, mixed in self.mixed.items()}
        models = tuple(self.models[name] for name in names if name in self.models)
        return ProfileSet(self.name, models, self.hardware, measurement,
                          self.confidences and self.confidences.select(
                              {model.name for model in models}))


@dataclass(frozen=True)
class _Answers:
    """Answers of all models to labelled samples."""

    labelled: LabelledSamples
    models: dict[str, tuple[BoolArray, FloatArray]]  # correct, confidence by model
    confidence: str  # measure of a model's confidence, or the output that has it

    @property
    def published(self) -> dict[str, Published]:
        """Share of right answers of each model on the labelled samples, with the source."""
        source = (f"share of right answers to {len(self.labelled.labels)} samples of "
                  f"{self.labelled.source}")
        return {name: Published(round(float(right.mean()), 6), source)
                for name, (right, _) in self.models.items()}

    def confidences(self, accuracies: Mapping[str, float]) -> Confidences:
        """Return the confidences; refuse those that contradict accuracies."""
        with placed(lambda field: f"{self.labelled.path}: {field}"):
            confidences = Confidences.of(
                self.models, groups=self.labelled.groups,
                source=f"{self.labelled.source}; {self.confidence}")
            confidences.check_accuracies(accuracies)
        return confidences.calibrated(accuracies)


def _answered(
    backend: Backend, by_name: Mapping[str, str], labelled: LabelledSamples, confidence: str,
    settings: MeasureSettings,
) -> _Answers:
    """Load each model in turn, and let it answer labelled samples."""
    if settings.backend == "callable" and settings.options.inputs is None:
        raise InvalidValueError("functions are called with batch sizes, not with samples",
                                where="labels", value=labelled.path,
                                allowed="--inputs MODULE:FUNCTION, which makes inputs from a "
                                "batch size; functions then take inputs")
    return _Answers(labelled, {name: labelled.answered(name, backend.open(model), confidence)
                               for name, model in by_name.items()}, confidence)


def _by_name(backend: Backend, models: Sequence[str]) -> dict[str, str]:
    """Return the back end's names of the models by their names in the profile."""
    by_name: dict[str, str] = {}
    for model in models:
        name = backend.name(model)
        if name in by_name:
            raise InvalidValueError("two models of one name", where="model", value=name,
                                    allowed="each name once")
        by_name[name] = model
    if not by_name:
        raise InvalidValueError("no models", where="model", allowed="one or more")
    return by_name


def _accuracies(
    backend: Backend,
    by_name: Mapping[str, str],
    accuracy: str | os.PathLike[str] | Mapping[str, float] | None,
    source: str | None,
    answered: Mapping[str, Published],
) -> dict[str, Published]:
    """Return each model's accuracy: that of the user, on labelled samples, or a published one."""
    if isinstance(accuracy, str | os.PathLike):
        where, stated = str(accuracy), cast(Mapping[str, float], read_accuracy(accuracy))
        source = source or Path(accuracy).name
    else:
        where, stated = "accuracy", accuracy or {}
    accuracies: dict[str, Published] = {}
    for name, model in by_name.items():
        published = (Published(stated[name], source or "not stated") if name in stated
                     else answered.get(name) or backend.published(model))
        if published is None and accuracy is None and len(by_name) == 1:
            published = Published(1.0, "none: the only model counts 1")
        if published is None:
            raise InputFileError(
                f"no accuracy for model {name!r}, which a profile of several models must state",
                where=where, allowed="--accuracy FILE that names it, or --labels FILE")
        accuracies[name] = published
    return accuracies


def _description(settings: MeasureSettings, backend: Backend) -> dict[str, object]:
    """Describe how the models are measured; an absent limit is left out."""
    stop = {key: value for key, value in asdict(settings.stop).items() if value != math.inf}
    usual = asdict(Options())
    options = {key: value for key, value in asdict(settings.options).items()
               if key in ("threads", "device") or value != usual[key]}
    return {
        **backend.notes,
        "generator": "ramsis profile measure",
        "backend": settings.backend,
        "relative_error": f"distance from the {settings.stop.percentile} to the farther end of "
                          f"its {CONFIDENCE:.0%} confidence interval (order statistics, widened "
                          "by the spread between turns), as a fraction of it",
        "settings": {"batches": list(settings.batches), "order": settings.order,
                     "quantiles": settings.quantiles,
                     **({"size_points": list(settings.size_points)} if settings.size_points
                        else {}),
                     **({"law": settings.law} if settings.law else {}),
                     **stop, **options},
        "versions": versions(backend.libraries),
    }
