"""Sweeps into a URL: the tables of a folder, what is reused, and a store that goes away."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ramsis.errors import OutputError
from ramsis.sweep import Sweep, SweepSpec, run_sweep
from ramsis.sweep.store import _of_this_process
from tests.cli.command import refused
from tests.sweep.samples import GREEDY

fsspec = pytest.importorskip("fsspec")

TABLES = ("results.csv", "seeds.csv", "models.csv", "failures.csv", "value-table.json")


def spec(**changes: Any) -> SweepSpec:
    """Four cells, two of them with a policy."""
    return SweepSpec.of({
        "profiles": "digits-cpu", "slo_ms": 25, "workers": 1, "load_qps": [100, 200],
        "scheduler": ["greedy", "round-robin:grid=fixed:5,max_queue=4"], "duration_s": 0.2,
        **changes})


@pytest.fixture
def url(tmp_path):
    """A store in memory, empty."""
    return f"memory://{tmp_path.name}/sweep"


def content(url: str) -> dict[str, bytes]:
    """The files of a store, by their names below it."""
    system, root = fsspec.core.url_to_fs(url)
    return {name[len(root) + 1:]: system.cat_file(name) for name in system.find(root)}


@pytest.mark.slow
def test_a_url_gets_the_tables_of_a_folder_byte_for_byte(tmp_path, url):
    run_sweep(spec(), tmp_path / "here")
    result = run_sweep(spec(), url)
    found = content(url)
    for name in TABLES:
        assert found[name] == (tmp_path / "here" / name).read_bytes()
    cells = {path.name for path in (tmp_path / "here" / "cells").iterdir()}
    assert {name for name in found if name.startswith("cells/")} == {f"cells/{n}" for n in cells}
    assert result.files[0] == f"{url}/results.csv"


def test_a_damaged_result_is_made_again(tmp_path, url):
    run_sweep(spec(), url)
    system, root = fsspec.core.url_to_fs(url)
    before = content(url)
    name = next(one for one in before if one.startswith("cells/"))
    system.pipe_file(f"{root}/{name}", before[name][:-9])
    _of_this_process.cache_clear()
    assert run_sweep(spec(), url).computed == 1
    assert content(url)[name] == before[name]


@pytest.mark.slow
def test_sets_of_several_files_are_fetched_and_kept(url):
    several = spec(scheduler="central-queue:max_queue=4,grid=fixed:2", slo_ms="25:0.5,50:0.5",
                   load_qps=100)
    run_sweep(several, url)
    found = content(url)
    assert any(name.startswith("policies/") and name.endswith("manifest.json") for name in found)
    system, root = fsspec.core.url_to_fs(url)
    for name in [one for one in found if one.startswith("cells/")]:
        system.rm(f"{root}/{name}")
    _of_this_process.cache_clear()
    assert run_sweep(several, url).computed == 1
    assert content(url) == found


def test_a_url_that_cannot_be_opened_is_refused_in_a_line(tmp_path, run):
    path = tmp_path / "spec.toml"
    path.write_text(GREEDY)
    refused(run("sweep", path, "--out", "nowhere://bucket/x"), 2, "cannot open the store",
            "nowhere://bucket/x")


def breaking(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let a store in memory go away after some files."""
    kept: list[str] = []
    system = fsspec.filesystem("memory")
    put: Callable[..., None] = type(system).pipe_file

    def pipe_file(self: Any, path: str, value: bytes, **more: Any) -> None:
        kept.append(path)
        if len(kept) > after:
            raise ConnectionError("no route to the store")
        put(self, path, value, **more)

    monkeypatch.setattr(type(system), "pipe_file", pipe_file)


def test_a_store_that_goes_away_ends_the_sweep_and_loses_nothing_that_was_finished(
    url, monkeypatch
):
    with monkeypatch.context() as broken:
        breaking(broken, after=3)
        with pytest.raises(OutputError, match=r"cannot be written .*no route to the store") as one:
            run_sweep(spec(), url)
        assert "\n" not in str(one.value)
    assert len(content(url)) == 3
    _of_this_process.cache_clear()
    again = run_sweep(spec(), url)
    assert again.computed + again.reused == 4
    assert again.reused == 1  # three files: two policies and a cell


def test_a_folder_that_is_removed_meanwhile_is_said(tmp_path):
    sweep = Sweep(spec(scheduler="greedy"), tmp_path / "out")

    def remove() -> None:
        shutil.rmtree(tmp_path / "out")

    with pytest.raises(OutputError, match="a result that was finished is gone"):
        sweep.run(on_step=remove)


@pytest.mark.parametrize("lost", ["a file in its place", "removed"])
def test_a_folder_that_goes_away_is_a_line_and_the_same_command_goes_on(
    tmp_path, run, monkeypatch, lost
):
    (tmp_path / "spec.toml").write_text(GREEDY)
    out, away = tmp_path / "out", tmp_path / "away"
    arguments = ("sweep", tmp_path / "spec.toml", "--out", out, "--processes", 1)
    steps = Sweep._run_all

    def lose(self: Sweep, run_jobs: Any, jobs: Any, failed: Any, on_step: Any) -> None:
        def step() -> None:
            on_step()
            if not away.exists():
                out.rename(away)
                if lost == "a file in its place":
                    out.write_text("")

        steps(self, run_jobs, jobs, failed, step)

    with monkeypatch.context() as losing:
        losing.setattr(Sweep, "_run_all", lose)
        ran = run(*arguments)
    assert (ran.code, ran.out) == (2, ""), ran.err
    line = ran.err.splitlines()[-1]
    assert line.startswith("error: ")
    assert str(out) in line
    assert "error" not in "".join(ran.err.splitlines()[:-1])
    if lost == "a file in its place":
        out.unlink()
        away.rename(out)
    else:
        shutil.copytree(away, out, dirs_exist_ok=True)
    ran = run(*arguments)
    assert ran.code == 0, ran.err
    computed, reused = (int(part.split()[1]) for part in ran.out.splitlines()[0].split(",")[:2])
    assert computed + reused == 3
    assert reused >= 1
    run_sweep(SweepSpec.load(tmp_path / "spec.toml"), tmp_path / "undisturbed")
    for name in TABLES[:-1]:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_refused_in_a_line(tmp_path, run):
    (tmp_path / "spec.toml").write_text(GREEDY)
    (tmp_path / "out").mkdir(mode=0o500)
    refused(run("sweep", tmp_path / "spec.toml", "--out", tmp_path / "out"), 2, "cannot write",
            str(tmp_path / "out"))


SERVER = """
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

class Taking(SimpleHTTPRequestHandler):
    def do_PUT(self):
        path = Path(self.translate_path(self.path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *told):
        pass

folder, port = sys.argv[1], int(sys.argv[2])
server = ThreadingHTTPServer(("127.0.0.1", port), partial(Taking, directory=folder))
print("ready", flush=True)
server.serve_forever()
"""
"""A store over HTTP."""


@contextmanager
def serving(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", SERVER, str(folder), str(port)], text=True,
                          stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == "ready\n"
        try:
            yield server
        finally:
            server.kill()


def test_a_server_that_goes_away_is_a_line_and_the_same_command_goes_on(tmp_path, run):
    pytest.importorskip("aiohttp")
    (tmp_path / "spec.toml").write_text(GREEDY)
    (tmp_path / "store").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/sweep"
    with serving(tmp_path / "store", port) as server:
        def kill() -> None:
            server.kill()
            server.wait()

        with pytest.raises(OutputError, match="the store cannot be read") as one:
            run_sweep(SweepSpec.load(tmp_path / "spec.toml"), url, on_step=kill)
        assert "\n" not in str(one.value)
    assert len(list((tmp_path / "store" / "sweep" / "cells").iterdir())) == 1
    _of_this_process.cache_clear()
    arguments = ("sweep", tmp_path / "spec.toml", "--out", url, "--processes", 1)
    refused(run(*arguments), 2, "the store cannot be read", url, "run again once it is there")
    with serving(tmp_path / "store", port):
        ran = run(*arguments)
    assert ran.code == 0, ran.err
    assert ran.out.startswith("computed 2, reused 1, failed 0\n")
    run_sweep(SweepSpec.load(tmp_path / "spec.toml"), tmp_path / "here")
    for name in TABLES[:-1]:
        assert ((tmp_path / "store" / "sweep" / name).read_bytes()
                == (tmp_path / "here" / name).read_bytes())


@pytest.mark.slow
def test_s3_gets_the_tables_of_a_folder_and_is_missed_in_a_line(tmp_path, run, monkeypatch):
    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    (tmp_path / "spec.toml").write_text(GREEDY)
    server = moto.ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any",
                        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
                        "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").mkdir("bucket")
    arguments = ("sweep", tmp_path / "spec.toml", "--out", "s3://bucket/sweep", "--processes", 1)
    try:
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        run_sweep(SweepSpec.load(tmp_path / "spec.toml"), tmp_path / "here")
        found = content("s3://bucket/sweep")
        for name in TABLES[:-1]:
            assert found[name] == (tmp_path / "here" / name).read_bytes()
        assert run(*arguments).out.startswith("computed 0, reused 3")
    finally:
        server.stop()
    _of_this_process.cache_clear()
    refused(run(*arguments), 2, "the store cannot be read", "s3://bucket/sweep")
