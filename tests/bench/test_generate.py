"""``ramsis generate`` from a cold process: start-up, policies, files."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ramsis import profiles
from ramsis.policy import Policy, read_set
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.bench.cases import SLO_MS, WORKERS
from tests.bench.timing import Timing, process, several

LOAD_QPS = 2000.0
LIBRARIES = "import numpy, scipy.linalg, scipy.optimize, scipy.sparse, scipy.special"


def _generate(profile: Path, load: str, folder: Path) -> tuple[list[dict[str, Any]], Timing]:
    """The rows that the command prints, and its times."""
    printed, timing = process(
        "-m", "ramsis", "generate", "--profiles", str(profile), "--slo-ms", f"{SLO_MS:g}",
        "--workers", str(WORKERS), "--load", load, "--out", str(folder), "--json",
    )
    rows: list[dict[str, Any]] = json.loads(printed)["rows"]
    return rows, timing


def made_here(profile: Path) -> Policy:
    """What the command makes, in this process."""
    settings = SynthesisSettings(slo_ms=SLO_MS, workers=WORKERS)
    return generate_policy(profiles.load(str(profile)), LOAD_QPS, settings)


def test_one_policy_from_a_cold_process(benchmark, ledger, profile_file, tmp_path):
    times: list[Timing] = []
    folders = (tmp_path / str(i) for i in count())

    def once() -> Path:
        folder = next(folders)
        rows, timing = _generate(profile_file, f"{LOAD_QPS:g}", folder)
        assert len(rows) == 1
        times.append(timing)
        return folder

    folder = benchmark.pedantic(once, rounds=7, warmup_rounds=1)
    (policy,) = (level.policy for level in read_set(folder).levels)
    stated = made_here(profile_file).expectations
    assert policy.expectations.effective_accuracy == pytest.approx(
        stated.effective_accuracy, abs=1e-9
    )
    timing = Timing.of(times[1:])
    ledger.time("ramsis generate, one policy, cold process", timing, 1.5)
    bare = Timing.of([process("-c", LIBRARIES)[1] for _ in range(5)])
    ledger.ratio(timing, bare, "the import of NumPy and SciPy alone")


def test_start_up(benchmark, ledger):
    """All that ``ramsis generate`` loads before it begins to work."""
    times: list[Timing] = []
    code = "import ramsis.cli.main, ramsis.cli.policies.generate"
    benchmark.pedantic(lambda: times.append(process("-c", code)[1]), rounds=7, warmup_rounds=1)
    timing = Timing.of(times[1:])
    ledger.time("start-up of ramsis generate", timing, 0.35)
    bare = Timing.of([process("-c", LIBRARIES)[1] for _ in range(5)])
    ledger.ratio(timing, bare, "the import of NumPy and SciPy alone")


def test_sixty_policies_in_three_runs(benchmark, ledger, profile_file, tmp_path):
    folders = (tmp_path / str(i) for i in count())
    times: list[Timing] = []

    def once() -> list[Path]:
        made = [next(folders) for _ in range(3)]
        first, second, third = (
            _generate(profile_file, "200:4000:200", folder)[1] for folder in made
        )
        times.append(first.plus(second).plus(third))
        return made

    made = benchmark.pedantic(once, rounds=3)
    for folder in made:
        policies = [level.policy for level in read_set(folder).levels]
        assert [p.load_qps for p in policies] == [200.0 * i for i in range(1, 21)]
        assert all(p.certificate.converged for p in policies)
        assert len(list(folder.glob("round-robin-*.json"))) == 20
    timing = Timing.of(times)
    ledger.time("ramsis generate, three runs of 20 loads", timing, 8.0)
    solving = several(lambda: made_here(profile_file), 15).scaled(60)
    ledger.ratio(timing, solving, "60 policies without start-up and files")
