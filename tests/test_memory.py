"""What memory there is, and that work which needs more is refused before it begins."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from ramsis import memory
from ramsis.arrivals import Arrivals
from ramsis.arrivals.process import check_amount
from ramsis.errors import InvalidValueError
from ramsis.sim import Engine
from tests.scenario.samples import scenario as scenario_of
from tests.scenario.samples import stream

GB = 1e9


@pytest.fixture
def tight(monkeypatch):
    """A tenth of a GB."""
    monkeypatch.setattr(memory, "available_bytes", lambda: 0.1 * GB)


def test_the_limit_of_the_address_space_counts():
    """In a process of its own, as the limit cannot be raised again."""
    code = ("import resource; from ramsis.memory import available_bytes\n"
            "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))\n"
            "held = bytearray(1 << 30); print(available_bytes())")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True).stdout
    assert 2.5 * 2**30 < float(said) < 3 * 2**30


@pytest.mark.parametrize("kind", ["second", "first"])
def test_the_limits_of_control_groups_count(tmp_path, monkeypatch, kind):
    """Those of the groups that the own one is in, too; what they cache is free."""
    below, limit, used, line = {
        "second": ("", "memory.max", "memory.current", "0::/outer/inner"),
        "first": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                  "4:memory:/outer/inner")}[kind]
    for name, most, now, cached in (("outer", "800", "500", "100"),
                                    ("outer/inner", "900", "0", "0")):
        folder = tmp_path / below / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / limit).write_text(most + "\n")
        (folder / used).write_text(now + "\n")
        (folder / "memory.stat").write_text(f"anon 3\ninactive_file {cached}\n")
    (tmp_path / "own").write_text(f"1:name=systemd:/\n{line}\n")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    assert memory.available_bytes() == 400.0
    (tmp_path / below / "outer" / limit).write_text("max\n")
    assert memory.available_bytes() == 900.0
    monkeypatch.setattr(memory, "_processes", 3)
    assert memory.available_bytes() == 300.0


def test_what_is_available_is_plausible():
    pages = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
    assert 1e6 < memory.available_bytes() <= pages


def test_more_arrivals_than_there_is_memory_for_are_refused(tight):
    check_amount(1e6)
    with pytest.raises(InvalidValueError, match=(
            r"^--queries: too many arrivals for one run for the memory: got '2e\+06'; "
            r"allowed: at most 1.56e\+06 in the 0.1 GB that are free$")):
        check_amount(2e6, where="--queries")


@pytest.mark.parametrize("process", [
    "poisson", "renewal:2", "fixed-rate", "negative-binomial:1e7",
    "mmpp:ratio=2,burst-ms=1e-9,share=0.5"])
def test_no_process_draws_more_than_fits(tight, process):
    """Nor switches between more modes."""
    drawn = Arrivals.parse(process).drawn(1000.0)
    duration_ms = 1e5 if "binomial" in process else 1e7

    def many() -> None:
        for seed in range(1000):  # of counts in batches only some are large
            drawn.sample(duration_ms, np.random.default_rng(seed))

    with pytest.raises(InvalidValueError, match="too many arrivals"):
        many()


def test_requests_that_a_run_makes_are_counted(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 0.02 * GB)
    scenario = scenario_of(streams=[stream(workload={"users": 1_000_000})])
    with pytest.raises(InvalidValueError, match="streams: too many arrivals"):
        Engine.of_scenario(scenario)


@pytest.mark.parametrize("words", [
    "simulate --profiles digits-cpu --slo-ms 25 --workers 4 --load 4000 --duration-s 1e5 "
    "--scheduler greedy",
    "capacity --profiles digits-cpu --slo-ms 25 --load 4000 --duration-s 1e5 --scheduler greedy",
])
def test_a_command_says_so_before_it_begins(tight, run, words):
    ran = run(*words.split())
    assert ran.code == 2
    assert ran.err.startswith("error: workload: too many arrivals for one run for the memory")
    assert len(ran.err.splitlines()) == 1


def test_a_frontier_simulates_in_runs_that_fit(run, monkeypatch):
    """Whatever its number of queries: ``--queries 1e9`` took all memory."""
    from ramsis.synthesis import simulated

    seen: list[tuple[int, int]] = []

    def noted(policy: object, *, queries: int, runs: int, seed: int) -> simulated.Simulated:
        seen.append((queries, runs))
        return simulated.Simulated(0.0, 0.0, 0.0, 0.0, queries, runs, seed)

    monkeypatch.setattr(simulated, "simulated", noted)
    ran = run("frontier", "--profiles", "digits-cpu", "--slo-ms", 25, "--workers", 2, "--load",
              9000, "--points", 2, "--max-queue", 4, "--queries", 10**9)
    assert ran.code == 0
    assert seen
    assert all(queries == 10**9 and queries / runs <= 4e6 for queries, runs in seen)
