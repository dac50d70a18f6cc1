"""Conformance tests for schedulers and importers of your own.

Call them from your test suite; they raise ``AssertionError`` with the rule that is broken:

>>> from ramsis.testing import check_scheduler
>>> check_scheduler("greedy")

The schedulers and importers of ramsis pass the same checks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ramsis.cluster import Cluster
from ramsis.errors import InputFileError, RamsisError
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.importers import import_profile
from ramsis.profiles.importers.runs import Given
from ramsis.scenario import Scenario, scenario_from_document
from ramsis.sim import (
    Engine,
    Recorded,
    Run,
    SchedulerSpec,
    SimulationSettings,
    scheduler,
    simulate,
)

__all__ = ["check_importer", "check_reader", "check_run", "check_scheduler", "sample_profile",
           "sample_scenario"]

_SECOND_MS = 1000.0
_SEEDS = (0, 1)
_CUTS = 24  # prefixes of a file, so that a cut falls into each part of it
_ODD_PARTS = ("", "\n", ",", '"', "\x00", "1e999", "-", "é", "{", "[", ";", "\t", "9" * 400, "NaN",
              "null", "-1", "0")
_OTHER_FILES = ("", "a\nb", "\x00", "5", "[]", "{}", "null", "[5]", '"x"', "[[]]", "[{}]", "x",
                ",", "{}\n{}", '{"hello": [1, 2, 3]}')


def sample_profile() -> ProfileSet:
    """Return a profile of three models, each more accurate and slower than the one before."""
    p95_ms = {"small": (0.6, {1: 4.0, 2: 6.0, 4: 10.0, 8: 18.0}),
              "medium": (0.75, {1: 9.0, 2: 15.0, 4: 27.0}), "large": (0.9, {1: 20.0, 2: 36.0})}
    return ProfileSet("sample", tuple(
        ModelProfile(name, accuracy, tuple(BatchProfile(batch, p95_ms=value)
                                           for batch, value in values.items()))
        for name, (accuracy, values) in p95_ms.items()))


def sample_scenario() -> Scenario:
    """Return a scenario of three models and two workers, each with room for two models."""
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "sample", "duration_s": 3,
        "worker_types": [{"name": "gpu", "count": 2, "memory_mb": 250}],
        "models": [{"name": name, "memory_mb": 100, "load_ms": 30,
                    "latency": [{"worker_type": "gpu", "batch": batch, "latency_ms": 5.0 + batch}
                                for batch in (1, 2, 4)]} for name in "abc"],
        "streams": [{"name": name, "model": name, "slo_ms": 200, "workload": {"load_qps": 20}}
                    for name in "abc"],
        "start": [{"worker": "gpu-1", "models": ["a"]}],
    })


def check_scheduler(name: str | SchedulerSpec, *, serves_all: bool = True) -> None:
    """Check a scheduler on a small fleet and on a scenario with less memory than models.

    Schedulers of equal workers are checked on the fleet only.

    The rules are: each request is answered, dropped or left waiting, and only once; no batch
    starts before its requests have arrived; the same seed gives the same run. On a fleet,
    decisions must depend on the past only: without the later half of the requests, the first half
    must be served in the same way. With ``serves_all`` no request may be left waiting at the end.

    A ``name`` is as ``--scheduler`` takes it; pass code of your own to :func:`ramsis.trust` first.
    """
    spec = scheduler(name) if isinstance(name, str) else name
    times_ms = np.sort(np.random.default_rng(5).uniform(0.0, 3 * _SECOND_MS, 360))
    whole = _on_fleet(spec, times_ms)
    check_run(whole, serves_all=serves_all)
    _check_same(whole, _on_fleet(spec, times_ms), np.inf)
    _check_same(whole, _on_fleet(spec, times_ms[:180]), times_ms[180] - times_ms[0])
    if spec.of_fleets is spec:
        for seed in _SEEDS:
            run, again = (spec.serve(Engine.of_scenario(sample_scenario(), seed))
                          for _ in range(2))
            check_run(run, serves_all=serves_all)
            _check_same(run, again, np.inf)


def check_run(run: Run, *, serves_all: bool = True) -> None:
    """Check that a run has each request once, and starts no batch before its requests.

    With ``serves_all`` no request may be left waiting at the end.
    """
    answered = run.batch_of >= 0
    counts = np.bincount(run.batch_of[answered], minlength=len(run.size))
    assert np.array_equal(counts, run.size), "batches do not have the requests that they state"
    dropped = np.flatnonzero(run.batch_of == -2)
    assert np.array_equal(np.sort(run.drop_request), dropped), "a request is dropped twice or lost"
    begun_ms = run.start_ms[run.batch_of[answered]]
    assert (begun_ms >= run.arrival_ms[answered]).all(), "a batch starts before its requests"
    assert (run.finish_ms >= run.start_ms).all(), "a batch ends before it starts"
    waiting = np.flatnonzero(run.batch_of == -1)
    assert not serves_all or not len(waiting), f"requests are left waiting: {waiting[:5]}"


def _on_fleet(spec: SchedulerSpec, times_ms: NDArray[np.float64]) -> Run:
    cluster = Cluster.of(sample_profile(), workers=3, slo_ms=100.0)
    workload = Recorded(times_ms, 3 * _SECOND_MS)
    result = simulate(cluster, spec, workload, SimulationSettings(engine="plain"), keep_runs=True)
    return result.runs[0]


def _check_same(run: Run, other: Run, before_ms: float) -> None:
    """Check that two runs start the same batches until a time."""
    def batches(run: Run) -> list[tuple[float, ...]]:
        rows = zip(run.start_ms, run.worker, run.model, strict=True)
        return sorted(tuple(map(float, row)) for row in rows if row[0] < before_ms)

    words = ("two runs of the same seed differ" if np.isinf(before_ms)
             else "decisions depend on requests that have not arrived")
    assert batches(run) == batches(other), words


def check_importer(format: str, source: Path, folder: Path, given: Given | None = None) -> None:
    """Check an importer of profiles on a sample file, damaged copies of it and other files.

    The rules are: the sample has models with batches; a damaged copy is imported, or refused in
    one line; a file with other contents, such as a JSON list, is refused.

    ``format`` is one of :data:`ramsis.profiles.importers.FORMATS`, ``source`` the sample,
    ``folder`` an empty folder for the damaged copies. ``given`` has what the sample does not
    contain, such as the batch size.
    """
    class AnyModel(dict[str, float]):
        """Mapping that has the accuracy 0.5 for every model."""

        def get(self, key: str, default: object = None) -> float:
            return 0.5

    def read(path: Path) -> ProfileSet:
        return import_profile(path, format, accuracy=AnyModel(any=0.5), given=given)

    profile = read(source)
    assert profile.models, "the sample has no model"
    assert all(model.batches for model in profile.models), "a model has no batches"
    check_reader(read, source, folder)
    for text in _OTHER_FILES:
        path = folder / source.name
        path.write_text(text)
        try:
            read(path)
        except InputFileError:
            continue
        raise AssertionError(f"{path}: a file of something else is imported: {text!r}")


def check_reader(
    read: Callable[[Path], object], source: Path, folder: Path, *, count: int = 60, seed: int = 0,
) -> None:
    """Check that a reader takes damaged copies of a file or refuses them in one line.

    ``read`` may raise a :class:`~ramsis.errors.RamsisError`, and nothing else. Copies of
    ``source`` in ``folder`` are cut off, repeated, emptied, replaced, and, ``count`` of them,
    changed in random places.
    """
    for i, content in enumerate(_damaged(source.read_bytes(), count, random.Random(seed))):
        path = folder / f"{i}" / source.name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        words = "imported"
        try:
            read(path)
        except RamsisError as error:
            words = str(error)
        except Exception as error:
            raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error
        assert words, f"{path}: refused without a word"
        assert "\n" not in words, f"{path}: refused in several lines: {words}"


def _damaged(content: bytes, count: int, rng: random.Random) -> list[bytes]:
    """Return damaged copies of a file's content."""
    text = content.decode(errors="replace")
    lines = text.splitlines(keepends=True)
    copies = [content[:len(content) * i // _CUTS] for i in range(_CUTS)]
    copies += [content * 2, b" \n\n", bytes(range(256)), bytes(100)]
    copies += [text.encode() for text in _OTHER_FILES]
    for _ in range(count):
        rng.shuffle(shuffled := list(lines))
        changed = list(text if rng.random() < 0.8 else "".join(shuffled))
        for _ in range(rng.randrange(1, 5)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.choice(_ODD_PARTS)
        copies.append("".join(changed).encode(errors="replace"))
    return copies
