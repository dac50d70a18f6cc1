"""Histograms and counters of the server are those of the library, counted with less work."""

import random

import pytest

pytest.importorskip("prometheus_client")


@pytest.mark.parametrize("accepted", ["", "text/plain"])
def test_they_read_like_those_of_the_library(accepted):
    from prometheus_client import CollectorRegistry, Counter, Histogram

    from ramsis.serving.recorder import Counts, Histograms, ServerMetrics

    name, text, bounds, draw = "ramsis_ms", "Time & more", (0.5, 1, 20, 5000), random.Random(7)
    ours, theirs = ServerMetrics(), ServerMetrics()
    theirs.registry = CollectorRegistry()
    ours.registry = CollectorRegistry()
    mine = Histograms(name, text, bounds, ours.registry, ["variant"])
    library = Histogram(name, text, ["variant"], buckets=bounds, registry=theirs.registry)
    counts = Counts("ramsis_of", text, ["variant", "outcome"], ours.registry)
    counter = Counter("ramsis_of", text, ["variant", "outcome"], registry=theirs.registry)
    for value in [*bounds, 0.0, 6000.0, *(draw.expovariate(0.1) for _ in range(200))]:
        variant = draw.choice(["small", 'la"rge'])
        mine.labels(variant).observe(value)
        library.labels(variant).observe(value)
        counts.of[variant, "served"] += 1
        counter.labels(variant, "served").inc()
    found, wanted = (sorted(one.text(accepted)[0].decode().splitlines())
                     for one in (ours, theirs))
    assert found == [line for line in wanted if "_created" not in line]
    assert len(found) == 2 * (len(bounds) + 4) + (5 if not accepted else 4)
