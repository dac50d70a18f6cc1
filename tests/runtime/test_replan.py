"""Policies made while serving: whole sets only, errors kept from the queries, newest first."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ramsis import policy, runtime
from ramsis.cli.main import _run
from ramsis.errors import InputFileError, InvalidValueError, RamsisError
from ramsis.runtime.replan import Replanner
from tests.policy.samples import small_policy
from tests.slow import slow_after

OPTIONS = ["--profiles", "digits-cpu", "--slo-ms", "100", "--workers", "4", "--grid", "fixed:4",
           "--max-queue", "2"]
LEVELS = (400.0, 800.0, 1200.0)
PATIENCE_S = 60.0


def write_set(folder: Path, label: str, loads: Sequence[float] = LEVELS) -> Path:
    """A set whose models all have a label in their names."""
    sample = small_policy()
    models = tuple(dataclasses.replace(m, name=f"{label}-{m.name}") for m in sample.models)
    expected = dataclasses.replace(sample.expectations, model_share={models[0].name: 1.0})
    members = [small_policy(load_qps=load, models=models, expectations=expected) for load in loads]
    policy.write_set(folder, policy.set_of(members), created_by="test")
    return folder


def script(tmp_path: Path, body: str) -> list[str]:
    """A generator of a test's own; ``loads`` and ``out`` are what it was asked for."""
    path = tmp_path / "generator.py"
    path.write_text("import os, shutil, signal, sys, time\n"
                    "from pathlib import Path\n"
                    "out, loads = Path(sys.argv[-1]), sys.argv[-3]\n" + body)
    return [sys.executable, "-I", "-S", str(path)]


def wait_for(holds: Callable[[], object]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.005)


@pytest.fixture
def errors():
    return []


@pytest.fixture
def served(tmp_path):
    return write_set(tmp_path / "served", "old")


@pytest.fixture
def closing():
    replanners: list[Replanner] = []
    yield replanners
    for each in replanners:
        each.close()


def test_a_load_above_every_level_gets_a_policy_in_the_background(tmp_path, errors):
    folder = tmp_path / "policies"
    assert _run(["generate", *OPTIONS, "--load", "50", "--out", str(folder)]) == 0
    with Replanner(folder, OPTIONS, on_error=errors.append, headroom=1.5) as replanner:
        before = replanner.policies
        assert replanner.at(80.0).above_highest
        assert replanner.wait(PATIENCE_S)
        assert not errors
        assert (replanner.at(80.0).level_qps, replanner.at(80.0).above_highest) == (120.0, False)
        assert before.loads() == (50.0,)
        assert replanner.policies.loads() == runtime.load_set(folder).loads() == (50.0, 120.0)
        other = [*OPTIONS[:3], "80", *OPTIONS[4:]]
        replanner.plan_set(tmp_path / "new", other)
        assert replanner.wait(PATIENCE_S)
        assert not errors
        choice = replanner.at(50.0)
        assert (choice.level_qps, choice.selector.table.slo_ms) == (50.0, 80.0)
        assert replanner.policies.loads() == (50.0, 120.0)


def test_every_answer_belongs_to_one_whole_set_while_sets_are_exchanged(tmp_path, served, errors):
    write_set(tmp_path / "a", "a")
    write_set(tmp_path / "b", "b", (*LEVELS, 1600.0))
    program = script(tmp_path, "shutil.copytree(sys.argv[1], out, dirs_exist_ok=True)\n")
    stop, wrong, counts = threading.Event(), [], [0] * 4

    def ask(thread: int) -> None:
        while not stop.is_set():
            policies = replanner.policies
            labels = {policies.at(load).selector(queued, 95.0).model.split("-")[0]
                      for load in policies.loads() for queued in (1, 2, 9)}
            levels = len(policies.loads())
            if labels not in ({"old"}, {"a"}, {"b"}) or levels != 3 + (labels == {"b"}):
                wrong.append((labels, levels))
            counts[thread] += 1

    with Replanner(served, [], on_error=errors.append, program=program) as replanner:
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        try:
            for i in range(4):
                source = "ab"[i % 2]
                replanner.plan_set(tmp_path / f"set{i}", [str(tmp_path / source)], LEVELS)
                assert replanner.wait(PATIENCE_S)
                assert replanner.at(400.0).selector(1, 95.0).model.startswith(source)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not errors
    assert not wrong
    assert min(counts) > 0


def test_a_generator_killed_midway_leaves_the_set_and_the_answers(tmp_path, served, errors):
    write_set(tmp_path / "more", "old", (2000.0,))
    program = script(tmp_path, f"""
shutil.copy({str(tmp_path / "more")!r} + "/round-robin-02000qps.json", out)
(out / ".manifest.json.half").write_text('{{"format": "ramsis.mani')
os.kill(os.getpid(), signal.SIGKILL)
""")
    with Replanner(served, [], on_error=errors.append, program=program) as replanner:
        before = replanner.policies
        assert replanner.at(1500.0).above_highest
        assert replanner.wait(PATIENCE_S)
        assert "exit code -9" in str(errors[0])
        assert replanner.policies is before
        assert replanner.at(1500.0).level_qps == 1200.0
        assert len(errors) == 1
    assert runtime.load_set(served).loads() == LEVELS


@pytest.mark.slow
def test_the_real_generator_killed_at_any_moment_leaves_a_valid_set(tmp_path):
    folder = tmp_path / "policies"
    command = [sys.executable, "-m", "ramsis", "generate", *OPTIONS, "--out", str(folder)]
    subprocess.run([*command, "--load", "5"], check=True, capture_output=True)
    loads = "10:200:1"
    for files in (2, 8, 9):
        process = subprocess.Popen([*command, "--load", loads], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        while len(list(folder.glob("round-robin*.json"))) < files and process.poll() is None:
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert 5.0 in runtime.load_set(folder).loads()
        assert policy.read_set(folder)


def test_what_fails_is_told_in_the_background_only(tmp_path, served, closing):
    told: list[tuple[str, str]] = []

    def tell(error: RamsisError) -> None:
        told.append((threading.current_thread().name, str(error)))

    body = "print('error: no such profile', file=sys.stderr); sys.exit(3)"
    closing.append(Replanner(served, [], on_error=tell, program=script(tmp_path, body)))
    closing[0].at(5000.0)
    assert closing[0].wait(PATIENCE_S)
    assert told == [("ramsis-replan",
                     "error: no such profile: the generator failed: got 'exit code 3'")]
    closing.append(Replanner(served, [], on_error=tell, program=["/no/such/program"]))
    closing[1].plan_load(5000.0)
    assert closing[1].wait(PATIENCE_S)
    assert "/no/such/program: cannot run the generator" in told[1][1]
    slow = script(tmp_path, "time.sleep(60)")
    closing.append(Replanner(served, [], on_error=tell, program=slow, timeout_s=0.2))
    closing[2].plan_load(5000.0)
    assert closing[2].wait(PATIENCE_S)
    assert "took too long and was stopped: got '0.2 s'" in told[2][1]
    nothing = script(tmp_path, "pass")
    closing.append(Replanner(served, [], on_error=tell, program=nothing))
    closing[3].plan_set(tmp_path / "fresh", [])
    assert closing[3].wait(PATIENCE_S)
    assert "not a folder" in told[3][1]
    assert {thread for thread, _ in told} == {"ramsis-replan"}
    assert all(each.at(400.0).level_qps == 400.0 for each in closing)


def test_an_error_in_a_callback_ends_nothing(tmp_path, served, monkeypatch):
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))

    def fail(error: RamsisError) -> None:
        raise KeyError(str(error))

    program = script(tmp_path, "sys.exit(1)")
    with Replanner(served, [], on_error=fail, program=program) as replanner:
        for count in (1, 2):
            replanner.plan_load(5000.0)
            assert replanner.wait(PATIENCE_S)
            assert len(seen) == count


def test_after_a_failure_only_what_is_asked_for_is_planned(tmp_path, served, errors):
    program = script(tmp_path, "sys.exit(1)")
    for rest_s, expected in ((60.0, 2), (0.0, 4)):
        errors.clear()
        with Replanner(served, [], on_error=errors.append, rest_s=rest_s,
                       program=program) as replanner:
            for _ in range(3):
                replanner.at(5000.0)
                assert replanner.wait(PATIENCE_S)
                replanner.at(400.0)
            replanner.plan_load(5000.0)
            assert replanner.wait(PATIENCE_S)
        assert len(errors) == expected


def test_the_newest_load_wins_and_one_process_runs_at_a_time(tmp_path, served, errors):
    log = tmp_path / "log"
    program = script(tmp_path, f"""
with open({str(log)!r}, "a") as stream:
    stream.write(f"start {{loads}}\\n"); stream.flush()
    while not Path({str(tmp_path / "go")!r}).exists(): time.sleep(0.005)
    stream.write(f"end {{loads}}\\n")
""")
    with Replanner(served, [], on_error=errors.append, program=program) as replanner:
        replanner.plan_load(2000.0)
        wait_for(lambda: log.exists() and "start" in log.read_text())
        for load in (2100.0, 2200.0, 2300.0):
            replanner.plan_load(load)
        assert not replanner.wait(0.0)
        (tmp_path / "go").touch()
        assert replanner.wait(PATIENCE_S)
    assert log.read_text().split("\n")[:-1] == [
        "start 2000.0", "end 2000.0", "start 2300.0", "end 2300.0"]
    assert not errors


def test_a_new_set_stops_what_is_made_for_an_older_one(tmp_path, served, errors):
    changes: list[object] = []
    write_set(tmp_path / "b", "b")
    body = "time.sleep(60) if sys.argv[1] == '--load' else shutil.copytree(sys.argv[1], out)"
    with Replanner(served, [], on_error=errors.append, on_change=changes.append,
                   program=script(tmp_path, body)) as replanner:
        replanner.plan_load(2000.0)
        replanner.plan_set(tmp_path / "never", [])
        replanner.plan_set(tmp_path / "new", [str(tmp_path / "b")])
        assert replanner.wait(PATIENCE_S / 2)
        assert replanner.at(400.0).selector(1, 95.0).model.startswith("b-")
        assert changes == [replanner.policies]
    assert not errors


def test_closing_stops_the_process_and_leaves_the_set(tmp_path, served, errors):
    started = tmp_path / "started"
    program = script(tmp_path, f"Path({str(started)!r}).write_text(str(os.getpid()))\n"
                               "time.sleep(60)")
    replanner = Replanner(served, [], on_error=errors.append, program=program)
    replanner.plan_load(2000.0)
    wait_for(lambda: started.exists() and started.read_text())
    replanner.close()
    replanner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    replanner.at(9000.0)
    assert replanner.wait(0.0)
    assert replanner.at(400.0).level_qps == 400.0
    assert not errors


def test_bad_arguments_are_refused(tmp_path, served):
    with pytest.raises(InputFileError, match="not a folder"):
        Replanner(tmp_path / "none", [], on_error=print)
    with pytest.raises(InvalidValueError, match="headroom: not a number in range"):
        Replanner(served, [], on_error=print, headroom=0.5)
    with pytest.raises(InvalidValueError, match="timeout_s"):
        Replanner(served, [], on_error=print, timeout_s=float("nan"))
    with Replanner(served, [], on_error=print) as replanner:
        with pytest.raises(InvalidValueError, match="not a load: got -1"):
            replanner.plan_load(-1.0)
        with pytest.raises(InvalidValueError, match="the folder is the one that is served"):
            replanner.plan_set(served, [])
        with pytest.raises(InvalidValueError, match="no loads"):
            replanner.plan_set(tmp_path / "new", [], [])


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("parent", slow_after(
    1, ["sys.exit(0)", "time.sleep(600)", "sys.exit(3)"]))
def test_a_grandchild_that_holds_the_pipe_does_not_outlast_the_time_allowed(
    tmp_path, served, errors, monkeypatch, parent
):
    """Whether the generator itself goes on or has ended, what it started is stopped with it.

    The time allowed is over once the grandchild runs.
    """
    started = tmp_path / "started"
    program = script(tmp_path, f"""
import subprocess
sleeper = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
Path({str(started)!r}).write_text(str(sleeper.pid))
{parent}
""")

    class OverWhenStarted(subprocess.Popen):  # type: ignore[type-arg]
        def communicate(self, input: None = None, timeout: float | None = None) -> Any:
            if timeout is None:
                return super().communicate()
            wait_for(lambda: started.exists() and started.read_text())
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", OverWhenStarted)
    with Replanner(served, [], on_error=errors.append, program=program) as replanner:
        replanner.plan_load(2000.0)
        assert replanner.wait(PATIENCE_S)
        assert "took too long and was stopped" in str(errors[0])
        assert replanner.at(400.0).level_qps == 400.0
    wait_for(lambda: not _alive(int(started.read_text())))


def _alive(process: int) -> bool:
    """Whether a process runs; one that has ended may wait to be asked for its end."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
