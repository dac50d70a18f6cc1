"""What a serving system pays: the import, and a lookup."""

from bisect import bisect_right

import numpy as np

from ramsis import profiles, runtime
from ramsis.policy import write
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.bench.cases import SLO_MS, WORKERS
from tests.bench.timing import Timing, process, repeated, several
from tests.policy.samples import longer_queue, tables

LOOKUPS = 20_000


def test_import(benchmark, ledger):
    empty: list[Timing] = []
    full: list[Timing] = []

    def pair() -> str:
        empty.append(process("-c", "pass")[1])
        printed, timing = process("-c", "import ramsis.runtime as r; print(r.load.__name__)")
        full.append(timing)
        return printed

    assert benchmark.pedantic(pair, rounds=25, warmup_rounds=1) == "load\n"
    differences = [b.minus(a) for a, b in zip(empty[1:], full[1:], strict=True)]
    ledger.time("import ramsis.runtime, over an empty interpreter", Timing.of(differences), 0.050)
    ledger.ratio(Timing.of(differences), Timing.of(empty[1:]), "an empty interpreter")


def test_lookup(benchmark, ledger, profile_file, tmp_path):
    settings = SynthesisSettings(slo_ms=SLO_MS, workers=WORKERS, late="serve")
    policy = generate_policy(profiles.load(str(profile_file)), 2000.0, settings)
    write(policy, tmp_path / "policy.json")
    selector = runtime.load_selector(tmp_path / "policy.json")
    rng = np.random.default_rng(0)
    queued = rng.integers(1, 36, LOOKUPS).tolist()  # now and then beyond the table
    slack_ms = rng.uniform(-20.0, 1.1 * SLO_MS, LOOKUPS).tolist()

    def ask() -> list[object]:
        return [selector(n, slack) for n, slack in zip(queued, slack_ms, strict=True)]

    answers, timing = repeated(benchmark, ask, rounds=30, warmup=2)
    models, _ = tables(policy)
    for n, slack, answer in zip(queued, slack_ms, answers, strict=True):
        if n > policy.max_queue:
            expected = longer_queue(policy)
        else:
            column = max(int((policy.slack_ms <= slack).sum()) - 1, 0)
            expected = int(models[n - 1, column]), n
        assert answer == (policy.models[expected[0]].name, expected[1])
    per_lookup = timing.scaled(1 / LOOKUPS)
    ledger.time("one lookup", per_lookup, 1e-6)
    edges, rows = policy.slack_ms.tolist(), models.tolist()

    def bare() -> list[int]:
        return [
            rows[n - 1 if n <= 32 else 31][bisect_right(edges, slack) - 1]
            for n, slack in zip(queued, slack_ms, strict=True)
        ]

    reference = several(bare, 30).scaled(1 / LOOKUPS)
    ledger.ratio(per_lookup, reference, "a bisection and two list entries, inline")
