"""A server that starts and stops its workers by a scaling policy, and one that only advises."""

import asyncio
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)

from ramsis.errors import InputFileError, InvalidValueError  # noqa: E402
from ramsis.policy import write_set  # noqa: E402
from ramsis.policy.policy_set import set_of  # noqa: E402
from ramsis.serving.recorder import ServerMetrics  # noqa: E402
from ramsis.serving.scaling.fleet import read_fleet, scaling_file  # noqa: E402
from ramsis.serving.scaling.workers import Advice  # noqa: E402
from ramsis.serving.server import ServerSettings  # noqa: E402
from ramsis.synthesis import SynthesisSettings, generate_policy  # noqa: E402
from tests.cli.command import refused  # noqa: E402
from tests.serving.servers import Load, Running, make, profile, running, until  # noqa: E402


def scaling_policy(folder: Path, dispatch: str = "round-robin", **other: Any) -> Path:
    """One worker at 4 QPS, two at 100, and as many as there are between; decided each 0.7 s."""
    make(folder)
    tables = folder / "policies" / "tables"
    for size in (1, 2):
        settings = SynthesisSettings(slo_ms=4000.0, grid="fixed:200", max_queue=8, workers=size,
                                     late="drop", dispatch=dispatch)
        write_set(tables / f"workers-{size}", set_of(
            [generate_policy(profile(), load * size, settings) for load in (13.0, 77.0)]),
            created_by="tests")
    (folder / "policies" / "manifest.json").unlink()
    document = {
        "format": "ramsis.scaling/1", "interval_s": 0.7, "startup_s": 0.7, "least": 1, "most": 3,
        "levels_qps": [4.0, 20.0, 100.0], "trends": [0.0], "smoothing": 0.5,
        "forecast_error": 0.2, "thresholds": [[[1, 1]], [[1, 2]], [[2, 2]]],
        "tables": [{"workers": workers, "made_for": min(workers, 2),
                    "folder": f"tables/workers-{min(workers, 2)}"} for workers in (1, 2, 3)],
        **other}
    (folder / "policies" / "scaling.json").write_text(json.dumps(document))
    return folder


def workers(server: Running) -> tuple[int, int, int]:
    """Active, starting and wanted ones, which readiness and metrics tell alike."""
    status, _, body = server.ask("GET", "/v2/health/ready")
    told = json.loads(body)["workers"]
    assert status == (200 if told["active"] else 503)
    return told["active"], told["starting"], told["wanted"]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", ["round-robin", "central-queue"])
def test_workers_follow_the_load_and_no_request_is_lost(tmp_path, dispatch):
    with running(scaling_policy(tmp_path, dispatch)) as server:
        first = server.wait_for("ready")["processes"]
        assert len(first) == 1
        assert workers(server) == (1, 0, 1)
        with Load(server) as load:
            load.at(3.0)
            time.sleep(2.0)
            assert workers(server) == (1, 0, 1)
            load.at(120.0)
            second = server.wait_for("worker started")["process"]
            until(lambda: workers(server) == (2, 0, 2))
            assert [server.metric(f"ramsis_{name}") for name in (
                "wanted_workers", "workers_active", "workers_starting")] == [2, 2, 0]
            time.sleep(1.5)
            assert alive(second)
            load.at(3.0)
            stopped = server.wait_for("worker stopped")
            until(lambda: workers(server) == (1, 0, 1))
            time.sleep(1.0)
        assert load.answered == {200: load.sent}
        assert server.metric("ramsis_queries_total") == load.sent
        assert stopped["process"] == second
        until(lambda: not alive(second))
        assert alive(first[0])
        decisions = [one for one in server.events() if one["event"] == "scaling"]
        assert [(one["active"], one["starting"], one["wanted"]) for one in decisions] == [
            (1, 0, 2), (2, 0, 1)]
        assert 30 < decisions[0]["load_qps"] < 150
        assert not [one for one in server.events() if one["event"] == "worker lost"]


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [False, True])
def test_a_worker_that_is_busy_stops_after_its_batch(tmp_path, crashes):
    """Both run for two seconds when one is to stop, which ends its batch, or crashes in it."""
    scaling_policy(tmp_path)
    module = tmp_path / "summing.py"
    module.write_text(module.read_text() + """
quick = fast
def fast(x):
    if x.max() == 555: time.sleep(2.0)
    if x.max() == 555 and os.path.exists(LAST):
        os.remove(LAST)
        os.abort()
    return quick(x)
""".replace("LAST", repr(str(tmp_path / "CRASHES"))))
    with running(tmp_path, "--retry") as server:
        with Load(server) as load:
            load.at(120.0)
            until(lambda: workers(server) == (2, 0, 2))
        if crashes:
            (tmp_path / "CRASHES").touch()
        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(server.infer, [[value, 0, 0]],
                                   parameters={"deadline_ms": 30_000})
                       for value in [555, 555] for _ in (time.sleep(0.1),)]
            decided = server.wait_for("scaling", 2)
            assert (decided["active"], decided["wanted"]) == (2, 1)
            assert not [one for one in answers if one.done()]
            assert not [one for one in server.events() if one["event"] == "worker stopped"]
            answers += [pool.submit(server.infer, [[value, 0, 0]],
                                    parameters={"deadline_ms": 30_000}) for value in range(4)]
            assert [one.result()[0] for one in answers] == [200] * 6
        server.wait_for("worker stopped")
        until(lambda: workers(server) == (1, 0, 1))
        assert server.metric("ramsis_queued") == 0


def children(process: int) -> set[int]:
    """The processes that one has started and that live."""
    return {int(found) for task in Path(f"/proc/{process}/task").iterdir()
            for found in (task / "children").read_text().split()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of processes here")
def test_a_worker_that_starts_is_given_up_or_ends_with_the_server(tmp_path):
    with running(scaling_policy(tmp_path)) as server:
        module, first = tmp_path / "summing.py", children(server.process.pid)
        module.write_text("import time\ntime.sleep(60.0)\n" + module.read_text())
        with Load(server) as load:
            load.at(120.0)
            until(lambda: workers(server) == (1, 1, 2))
            (second,) = children(server.process.pid) - first
            load.at(3.0)
            until(lambda: workers(server) == (1, 0, 1))
            until(lambda: not alive(second))
            load.at(120.0)
            until(lambda: workers(server) == (1, 1, 2))
        assert load.answered == {200: load.sent}
        every = children(server.process.pid)
        assert len(every) == 2
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        until(lambda: not any(map(alive, every)), 5.0)


@pytest.mark.slow
def test_a_worker_that_crashes_counts_as_starting_until_it_is_back(tmp_path):
    with running(scaling_policy(tmp_path)) as server:
        assert server.infer([[666, 0, 0]])[0] == 500
        server.wait_for("worker lost")
        assert workers(server) == (0, 1, 1)
        server.wait_for("worker back")
        assert workers(server) == (1, 0, 1)
        assert server.infer([[1, 2, 3]])[0] == 200
        assert not [one for one in server.events() if one["event"] == "scaling"]


@pytest.mark.slow
def test_a_server_that_advises_says_how_many_workers_others_should_run(tmp_path):
    for name in ("scaled", "serves"):
        (tmp_path / name).mkdir()
    scaled = scaling_policy(tmp_path / "scaled") / "policies"
    serves = make(tmp_path / "serves", slo_ms=2000.0, grid="fixed:200")
    with running(serves, "--advise", str(scaled)) as server:
        assert workers(server) == (1, 0, 1)
        with Load(server) as load:
            load.at(120.0)
            until(lambda: server.metric("ramsis_wanted_workers") == 2)
            assert workers(server) == (1, 1, 2)
        until(lambda: workers(server) == (1, 0, 1))
        assert len(server.wait_for("ready")["processes"]) == 1
        assert not [one for one in server.events() if one["event"] == "worker started"]


def test_the_load_of_all_peers_counts(monkeypatch, tmp_path):
    """Three servers with 1.9 QPS and one worker each; then none is found, and then one."""
    table = read_fleet(scaling_policy(tmp_path) / "policies" / "scaling.json").table
    found: list[Any] = [[(0, 0, 0, "", (address, 0)) for address in "abca"], None, [
        (0, 0, 0, "", ("a", 0))]]
    logged: list[str] = []

    async def looked_up(*_: object, **__: object) -> Any:
        addresses = found.pop(0)
        if addresses is None:
            raise socket.gaierror("no address")
        return addresses

    async def advised() -> list[tuple[int, int, int]]:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up, raising=False)
        server: Any = SimpleNamespace(
            workers=1, metrics=ServerMetrics(), arrived=0,
            log=lambda event, **fields: logged.append(event),
            settings=ServerSettings(),
            front=SimpleNamespace(dispatcher=SimpleNamespace(workers_up=1)))
        advice = Advice(server, table, "servers.example")
        told = []
        for load_qps in (None, 1.9, 60.0):
            await advice._look()
            if load_qps is not None:
                advice._decide(load_qps)
            told.append((advice.active, advice.starting, advice.wanted))
        return told

    # 5.7 QPS are near 4, for which one is enough; 180 are near 100, for which two start and
    # three, which are active, are too many
    assert asyncio.run(advised()) == [(3, 0, 3), (3, 0, 1), (1, 1, 2)]
    assert logged == ["peers unknown", "scaling", "scaling"]


def test_what_is_no_scaling_policy_for_these_variants_is_refused(run, tmp_path):
    folder = scaling_policy(tmp_path) / "policies"
    file, variants = folder / "scaling.json", tmp_path / "variants.toml"
    assert scaling_file(folder) == file
    written = json.loads(file.read_text())
    serve = ("serve", folder, "--variants", variants, "--port", 0)
    refused(run(*serve, "--replan", "--profiles x"), 2, "--replan", "workers-1")
    refused(run(*serve, "--calibrate", tmp_path / "new.json"), 2, "--calibrate")
    refused(run(*serve, "--advise", file), 2, "--advise")
    policies = ("serve", folder / "tables" / "workers-1", "--variants", variants, "--port", 0)
    refused(run(*policies, "--max-workers", 2), 2, "--max-workers", "needs a scaling policy")
    refused(run(*policies, "--peers", "servers"), 2, "--peers", "needs --advise")
    refused(run(*policies, "--advise", folder / "tables" / "workers-1" / "manifest.json"), 3,
            "not a ramsis.scaling file")
    refused(run(*policies, "--advise", tmp_path / "none.json"), 3, "none.json")

    def broken(code: int, *words: str, more: tuple[object, ...] = (), **other: Any) -> None:
        file.write_text(json.dumps({**written, **other}))
        refused(run(*serve, *more), code, *words)

    broken(2, "most workers", "1", "2 or more", more=("--max-workers", 1), least=2)
    broken(3, "thresholds", thresholds=[[[1, 1]]])
    broken(3, "tables", "no policies for a number of workers", "3", tables=written["tables"][:2])
    broken(3, "workers-2", "policies for other workers", tables=[
        {**one, "made_for": 1} for one in written["tables"]])
    broken(3, "none", tables=[{**one, "folder": "tables/none"} for one in written["tables"]])
    broken(3, "this version of ramsis.scaling is not known", format="ramsis.scaling/9")
    file.write_text(json.dumps(written))
    variants.write_text(variants.read_text().replace('name = "slow"', 'name = "other"'))
    refused(run(*serve), 3, "no variant", "slow")
    assert not (tmp_path / "new.json").exists()


def test_policies_of_a_fleet_are_for_the_load_of_all_active_workers(tmp_path):
    fleet = read_fleet(scaling_policy(tmp_path) / "policies" / "scaling.json")
    assert [fleet.policies(active).loads() for active in (0, 1, 2, 3)] == [
        (13.0, 77.0), (13.0, 77.0), (26.0, 154.0), (39.0, 231.0)]
    assert fleet.policies(3).worker_types == fleet.policies(1).worker_types == {"all": 3}
    made_for = fleet.selectors(3).levels[0].policy.table.workers
    assert made_for == 2
    assert read_fleet(tmp_path / "policies" / "scaling.json", most=2).table.most == 2
    with pytest.raises(InvalidValueError, match="least workers"):
        read_fleet(tmp_path / "policies" / "scaling.json", most=0)
    with pytest.raises(InputFileError):
        scaling_file(tmp_path / "nothing")
