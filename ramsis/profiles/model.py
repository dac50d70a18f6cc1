"""Data model of a profile set.

Every object checks its values on creation; a :class:`ProfileError` holds the place inside the
object, to which callers (a file reader, an importer) prepend their own place.
"""

from __future__ import annotations

import difflib
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramsis.errors import InvalidValueError, check_positive, whole
from ramsis.fields import Fields
from ramsis.files import fingerprint
from ramsis.profiles.batch import STATISTICS, BatchProfile, Statistic
from ramsis.profiles.confidences import Confidences, Samples
from ramsis.profiles.sized import SizedTimes
from ramsis.profiles.table import LatencyTable, Origin, fill_row, smoothed
from ramsis.profiles.values import (
    DELAY_MS,
    MAX_BATCH,
    MAX_MODELS,
    Name,
    ProfileError,
    ProfileRecord,
    check_models,
)
from ramsis.records import Entries, Positive, Reader, schema_of
from ramsis.reprs import dataclass, figure_of
from ramsis.tables import Column, html_table

if TYPE_CHECKING:
    import pandas as pd

_Result = TypeVar("_Result")

FORMAT = "ramsis.profile/1"
"""The ``format`` field of the files of profile sets."""


def _accuracy(item: Fields, key: str) -> float:
    """Read an accuracy; tell how to write one that seems to be in percent."""
    value = item.number(key)
    if not 0 <= value <= 1:
        hint = f" (in percent? then write {value / 100:g})" if 1 < value <= 100 else ""
        raise item.refusal(key, "accuracy out of range", value=value,
                           allowed=f"a fraction in [0, 1]{hint}")
    return value


def _notes(item: Fields, key: str) -> Mapping[str, Any]:
    """Read an object of free-form notes."""
    notes = item.child(key)
    return {name: notes.value(name) for name in notes}


_NOTES = Reader(_notes, {"type": "object"})


@dataclass(frozen=True)
class ModelProfile(ProfileRecord):
    """Profile of one model: its accuracy, and its latency at each measured batch size."""

    name: Annotated[Name, "Name of the model, unique in the set."]
    accuracy: Annotated[
        float, Reader(_accuracy, {"type": "number", "minimum": 0, "maximum": 1}),
        "Fraction of correct answers. Required of several models; a single model without one "
        "counts 1.",
    ]
    batches: Annotated[
        tuple[BatchProfile, ...],
        "Times of each measured batch size, size 1 among them, none twice. Where requests have a "
        "size, times of the largest size.",
    ]
    memory_mb: Annotated[Positive | None, "Memory of the loaded model."] = None
    load_ms: Annotated[Positive | None, "Time to load the model."] = None
    sized: SizedTimes | None = None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, of a model that may be the only one."""
        schema = schema_of(cls)
        return {**schema, "required": [name for name in schema["required"] if name != "accuracy"]}

    def check(self, item: Fields) -> None:
        """Refuse two batches of one size, and none of size 1; put them in ascending order."""
        sizes: set[int] = set()
        for i, batch in enumerate(self.batches):
            if batch.batch in sizes:
                raise item.refusal(f"batches[{i}].batch", "duplicate batch size",
                                   value=batch.batch, allowed="each batch size once")
            sizes.add(batch.batch)
        if 1 not in sizes:
            raise item.refusal("batches", "no batch-1 profile", value=sorted(sizes),
                               allowed="a list of profiles with one of batch size 1")
        object.__setattr__(self, "batches",
                           tuple(sorted(self.batches, key=lambda item: item.batch)))

    def statistic_by_batch(
        self, statistic: str
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a statistic of each batch in ms, as measured and as smoothed, shapes (P,)."""
        rows = []
        for item in self.batches:
            try:
                rows.append((item.statistic_ms(statistic), *item.interval_ms(statistic)))
            except ProfileError as error:
                raise InvalidValueError(
                    error.at(f"model {self.name}, batch {item.batch}, {error.field}")) from error
        values, low, high = np.array(rows).T
        return values, smoothed(values, low, high)


@lru_cache(maxsize=16)
def _received(packed: bytes) -> ProfileSet:
    """Unpickle a set; return the same object each time, to reuse its cached results."""
    return ProfileSet(*pickle.loads(packed))


@dataclass(frozen=True)
class ProfileSet(ProfileRecord):
    """Profile set: models measured in the same way on the same hardware."""

    FORMAT: ClassVar[str] = FORMAT

    name: Annotated[Name, "Name of the set."]
    models: Annotated[tuple[ModelProfile, ...], Entries(1, MAX_MODELS), "One or more models."]
    hardware: Annotated[
        Mapping[str, Any], _NOTES, "Notes on the hardware, in any form."
    ] = field(default_factory=dict)
    measurement: Annotated[
        Mapping[str, Any], _NOTES, "Notes on the measurement, in any form."
    ] = field(default_factory=dict)
    confidences: Confidences | None = None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON schema, which requires the accuracy of each of several models."""
        return {**schema_of(cls),
                "if": {"properties": {"models": {"minItems": 2}}},
                "then": {"properties": {"models": {"items": {"required": ["accuracy"]}}}}}

    def check(self, item: Fields) -> None:
        """Refuse confidences of other models, and sizes in different units."""
        seen = check_models(item, self.models)
        for i, confidence in enumerate(self.confidences.models if self.confidences else ()):
            if confidence.name not in seen:
                raise item.refusal(f"confidences.models[{i}].name", "no such model in the set",
                                   value=confidence.name, allowed=", ".join(seen))
        units = [model.sized.unit for model in self.models if model.sized]
        for i, model in enumerate(self.models):
            if model.sized and model.sized.unit != units[0]:
                raise item.refusal(f"models[{i}].sized.unit", "sizes in different units",
                                   value=model.sized.unit, allowed=units[0])

    def subset(self, names: Iterable[str]) -> ProfileSet:
        """Return the set with only the named models, in the order of the names.

        Confidences are restricted to these models and their pairs. A name that is not in the set
        or is given twice, or no name at all, is an InvalidValueError.
        """
        by_name = {model.name: model for model in self.models}
        chosen = []
        for name in names:
            if name not in by_name:
                near = difflib.get_close_matches(name, by_name, n=3) or list(by_name)
                raise InvalidValueError(f"unknown model of profile set {self.name!r}",
                                        where="models", value=name, allowed=", ".join(near))
            chosen.append(by_name[name])
        confidences = self.confidences and self.confidences.select(
            {model.name for model in chosen})
        return replace(self, models=tuple(chosen), confidences=confidences)

    def slower(self, slowness: float) -> ProfileSet:
        """Return the set with every latency multiplied by ``slowness`` > 0."""
        check_positive(slowness=slowness)
        if slowness == 1.0:
            return self
        return self.once(("slower", slowness), lambda: replace(self, models=tuple(
            replace(model, batches=tuple(item.slower(slowness) for item in model.batches),
                    sized=model.sized and model.sized.slower(slowness))
            for model in self.models)))

    def with_overhead(self, overhead_ms: float) -> ProfileSet:
        """Return the set with an overhead of 0 to 1e12 ms added to every latency.

        The overhead is the time of dispatching a batch and of returning its answers.
        """
        DELAY_MS.check("not an overhead", overhead_ms=overhead_ms)
        if not overhead_ms:
            return self
        return replace(self, models=tuple(
            replace(model, batches=tuple(item.longer(overhead_ms) for item in model.batches),
                    sized=model.sized and model.sized.longer(overhead_ms))
            for model in self.models))

    def with_confidences(
        self, samples: Samples, *, groups: ArrayLike | None = None, seed: int = 0,
        source: str | None = None,
    ) -> ProfileSet:
        """Return the set with confidences estimated from answered samples.

        The arguments are those of :meth:`Confidences.of`. Confidences are calibrated to the
        accuracies of the set (:meth:`Confidences.calibrated`). A model that the set does not have,
        or whose accuracy on the samples contradicts that of the set, is a ProfileError.
        """
        accuracies = {model.name: model.accuracy for model in self.models}
        for name in samples:
            if name not in accuracies:
                near = difflib.get_close_matches(name, accuracies, n=3) or list(accuracies)
                raise ProfileError(f"no such model in profile set {self.name!r}", "model", name,
                                   ", ".join(near))
        samples = {name: samples[name] for name in accuracies if name in samples}
        confidences = Confidences.of(samples, groups=groups, seed=seed, source=source)
        confidences.check_accuracies(accuracies)
        return replace(self, confidences=confidences.calibrated(accuracies))

    @cached_property
    def fingerprint(self) -> str:
        """Return the fingerprint of the set's file, without confidences and sizes.

        Policies without cascades or sizes do not depend on these.
        """
        document = self.to_document()
        document.pop("confidences", None)
        for model in document["models"]:
            model.pop("sized", None)
        return fingerprint(document)

    @cached_property
    def fingerprint_with_confidences(self) -> str:
        """Return the fingerprint of the set including confidences, if it has any."""
        if self.confidences is None:
            return self.fingerprint
        return fingerprint(f"{self.fingerprint} {self.confidences.fingerprint}")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the latency statistics that every model has at every batch size."""
        batches = [batch for model in self.models for batch in model.batches]
        return tuple(name for name in STATISTICS
                     if all(getattr(batch, f"{name}_ms") is not None for batch in batches))

    def latency_table(self, statistic: Statistic = "p95", max_batch: int = 32) -> LatencyTable:
        """Return the latency of every model at batch sizes 1 … ``max_batch``.

        See :mod:`ramsis.profiles.table` for the rules of padding and interpolation. ``statistic``
        is ``"p95"``, ``"p99"``, ``"p90"``, ``"p50"`` or ``"mean"``. A model that lacks it at some
        batch size is an InvalidValueError, which names both.
        """
        whole(1, MAX_BATCH).check("largest batch size out of range", max_batch=max_batch)
        return self.once(("latency table", statistic, max_batch),
                         lambda: self._latency_table(statistic, max_batch))

    def once(self, what: tuple[object, ...], work_out: Callable[[], _Result]) -> _Result:
        """Return a cached result that depends only on the set; compute it on first use."""
        if what not in self._worked_out:
            self._worked_out[what] = work_out()
        result: _Result = self._worked_out[what]
        return result

    @cached_property
    def _worked_out(self) -> dict[tuple[object, ...], Any]:
        return {}

    def __reduce__(self) -> tuple[Callable[[bytes], ProfileSet], tuple[bytes]]:
        """Pickle the set, so that another process reuses an equal one that it has."""
        return _received, (self._packed,)

    @cached_property
    def _packed(self) -> bytes:
        return pickle.dumps(tuple(getattr(self, item.name) for item in fields(self)))

    def _latency_table(self, statistic: str, max_batch: int) -> LatencyTable:
        rows = []
        for model in self.models:
            sizes = np.array([item.batch for item in model.batches])
            values, steady = model.statistic_by_batch(statistic)
            latency_ms, origin, run_as = fill_row(sizes, steady, max_batch)
            changed = np.append(steady != values, False)
            at = np.searchsorted(sizes, np.arange(1, max_batch + 1))
            origin[(origin == Origin.MEASURED) & changed[at]] = Origin.SMOOTHED
            rows.append((latency_ms, origin, run_as))
        latency_ms, origin, run_as = (np.array(column) for column in zip(*rows, strict=True))
        return LatencyTable(tuple(model.name for model in self.models),
                            np.array([model.accuracy for model in self.models]),
                            latency_ms, origin, statistic, run_as)

    def _summary(self) -> str:
        sizes = [item.batch for model in self.models for item in model.batches]
        accuracies = [model.accuracy for model in self.models]
        return (f"{self.name}: {len(self.models)} models, batches {min(sizes)} to {max(sizes)}, "
                f"accuracy {min(accuracies):.4g} to {max(accuracies):.4g}")

    def _repr_html_(self) -> str:
        """Return the models as an HTML table, for notebooks."""
        rows = [{"name": model.name, "accuracy": model.accuracy, "batches": ", ".join(
                    str(item.batch) for item in model.batches),
                 "p95_ms": model.batches[0].p95_ms, "memory_mb": model.memory_mb}
                for model in self.models]
        return html_table((Column("name", "model"), Column("accuracy", "accuracy", ".4f"),
                           Column("p95_ms", "p95 at batch 1 (ms)", ".4g"),
                           Column("memory_mb", "memory (MB)", ".4g"),
                           Column("batches", "batch sizes")), rows,
                          caption=f"Profile set {self.name}")

    def plot(self, *, batch: int = 1, statistic: Statistic = "p95") -> Any:
        """Return a figure of accuracy against latency, and of latency by batch size.

        It is that of `ramsis profile plot` (:class:`matplotlib.figure.Figure`). Models are
        compared at batch size ``batch``, and latencies are the ``statistic``.
        """
        return figure_of("profile", self, batch=batch, statistic=statistic)

    def to_frame(self) -> pd.DataFrame:
        """Return a row per model and batch size, every statistic a column (quantiles aside)."""
        import pandas as pd

        names = [item.name for item in fields(BatchProfile)
                 if item.name not in ("quantiles_ms", "quantile_levels")]
        rows = [
            {"model": model.name, "accuracy": model.accuracy, "memory_mb": model.memory_mb,
             "load_ms": model.load_ms, **{name: getattr(batch, name) for name in names}}
            for model in self.models
            for batch in model.batches
        ]
        return pd.DataFrame(rows)
