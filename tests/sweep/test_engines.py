"""Engines: which are refused, how jobs are handed to Ray, and what a lost process costs."""

import os
import signal
import socket
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import InvalidValueError, RamsisError
from ramsis.sweep import Engine, SweepSpec, run_sweep
from ramsis.sweep.engines import runner
from ramsis.sweep.pool import JobOutcome
from ramsis.sweep.ray_engine import AHEAD, RETRIES, _Cluster, ray_runner
from tests.cli.command import refused
from tests.sweep.samples import GREEDY

TABLES = ("results.csv", "seeds.csv", "models.csv", "failures.csv")


@dataclass(frozen=True)
class Written:
    """A job that writes its file, or ends its process."""

    path: Path
    deadly: bool = False

    @property
    def needs(self) -> Sequence[Any]:
        return ()

    def done(self) -> bool:
        return self.path.exists()

    def run(self) -> None:
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        self.path.write_text("made")


class LostError(Exception):
    """A process that was lost."""


class TaskError(Exception):
    """A task that could not be read."""

    cause = ModuleNotFoundError("No module named 'ramsis'")


class Cluster:
    """What the runner uses of Ray, in this process; tasks with a deadly job are lost."""

    exceptions = types.SimpleNamespace(RayError=LostError, RayTaskError=TaskError)

    def __init__(self, cpus: float = 2.0, broken: bool = False) -> None:
        self.cpus, self.broken = cpus, broken
        self.chunks: list[int] = []
        self.most = 0
        self.under: dict[int, Callable[[], Any]] = {}

    def remote(self, function: Callable[..., Any]) -> Any:
        def submit(jobs: Sequence[Written], names_of_code: Sequence[str]) -> int:
            self.chunks.append(len(jobs))
            self.under[len(self.chunks)] = lambda: self._run(function, jobs, names_of_code)
            self.most = max(self.most, len(self.under))
            return len(self.chunks)

        task = types.SimpleNamespace(remote=submit)
        return types.SimpleNamespace(options=lambda max_retries: task)

    def _run(
        self, function: Callable[..., Any], jobs: Sequence[Written], names_of_code: Sequence[str]
    ) -> Any:
        if self.broken:
            raise TaskError
        for job in jobs:
            if job.deadly:
                raise LostError
            job.run()
        return function(jobs, names_of_code)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def wait(self, refs: list[int], num_returns: int) -> tuple[list[int], list[int]]:
        return refs[-1:], refs[:-1]  # the last first: order must not matter

    def get(self, ref: int) -> Any:
        return self.under.pop(ref)()


def test_jobs_go_out_in_chunks_and_each_outcome_comes_back_once(tmp_path):
    cluster = Cluster()
    jobs = [Written(tmp_path / str(i)) for i in range(500)]
    found = list(_Cluster(cluster).run(jobs))
    assert sorted(index for index, _ in found) == list(range(500))
    assert all(outcome == JobOutcome() for _, outcome in found)
    assert cluster.chunks[0] == 1
    assert len(cluster.chunks) < 100
    assert cluster.most <= AHEAD * cluster.cpus


def test_a_job_that_ends_its_process_fails_alone(tmp_path):
    jobs = [Written(tmp_path / str(i), deadly=i in (3, 77)) for i in range(200)]
    found = dict(_Cluster(Cluster()).run(jobs))
    failed = {index for index, outcome in found.items() if outcome.error}
    assert failed == {3, 77}
    assert f"ended {RETRIES + 1} times" in str(found[3].error)
    assert len(found) == 200


def test_nodes_without_the_program_are_named(tmp_path):
    with pytest.raises(RamsisError, match=r"cannot run the jobs .*No module named"):
        list(_Cluster(Cluster(broken=True)).run([Written(tmp_path / "0")]))


@pytest.mark.parametrize(("terms", "words"), [
    ({"name": "slurm"}, "unknown engine"), ({"workers": 0}, "number of processes"),
    ({"address": "10.0.0.1:6379"}, "an address is of a Ray cluster"),
])
def test_an_engine_that_there_is_not_is_refused(terms, words):
    with pytest.raises(InvalidValueError, match=words):
        Engine(**terms)


def test_an_address_without_ray_is_refused_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, words in ((f"127.0.0.1:{port}", "no Ray cluster there"),
                           (f"ray://127.0.0.1:{port}", "no Ray cluster there"),
                           ("127.0.0.1:port", "no Ray cluster there"),
                           ("nowhere", "not the address of a cluster")):
        with pytest.raises(InvalidValueError, match=words), ray_runner(1, address):
            pass


def test_ray_that_does_not_start_is_told_in_a_line(tmp_path, run, monkeypatch):
    def init(**settings: Any) -> None:
        raise Exception("The current node timed out\nduring startup.")

    ended: list[bool] = []
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(
        init=init, shutdown=lambda: ended.append(True)))
    spec = tmp_path / "spec.toml"
    spec.write_text(GREEDY)
    refused(run("sweep", spec, "--out", tmp_path / "out", "--engine", "ray"), 1,
            "Ray cannot be started here (The current node timed out during startup.)")
    assert ended


def test_what_ray_says_to_its_end_is_no_part_of_the_output(monkeypatch, capsys):
    class Ray(Cluster):
        def init(self, **settings: Any) -> None:
            """Start."""

        def shutdown(self) -> None:
            print("(raylet) Task _run_chunk failed.")

    monkeypatch.setitem(sys.modules, "ray", Ray())
    with ray_runner(1) as run:
        assert list(run([])) == []
    printed = capsys.readouterr()
    assert (printed.out, "(raylet)" in printed.err) == ("", True)


def test_options_that_do_not_go_together_are_refused(tmp_path, run):
    base = ("sweep", tmp_path / "spec.toml", "--out", tmp_path / "out")
    refused(run(*base, "--address", "auto"), 2, "engine ray")
    refused(run(*base, "--engine", "ray", "--address", "auto", "--processes", 2), 2,
            "--processes is for this machine")


@pytest.mark.slow
def test_local_ray_gives_the_tables_of_processes_and_survives_a_deadly_job(tmp_path):
    pytest.importorskip("ray")
    spec = SweepSpec.of({
        "profiles": "digits-cpu", "slo_ms": 25, "workers": [1, 2], "load_qps": "100:500:100",
        "scheduler": ["greedy", "round-robin:grid=fixed:5,max_queue=4"], "duration_s": 0.2})
    run_sweep(spec, tmp_path / "here")
    run_sweep(spec, (tmp_path / "ray").as_uri(), processes=Engine("ray", 2))
    for name in TABLES:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()
    jobs = [Written(tmp_path / str(i), deadly=i == 5) for i in range(12)]
    with runner(Engine("ray", 2), len(jobs)) as run:
        found = dict(run(jobs))
    assert {index for index, outcome in found.items() if outcome.error} == {5}
    assert all((tmp_path / str(i)).exists() for i in range(12) if i != 5)
