"""Other model servers beside ours, each as a process with all that it starts.

A server yields where each of its models is asked. The models run on one thread; with fewer workers
than cores each is kept to the last core, as `ramsis serve` does it. What runs inside the others
stands in `live/apps`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from study import ROOT, family_of

from live.fleet import ONE_THREAD, Endpoint, running, serving
from ramsis.policy import Policy, write_set
from ramsis.policy.policy_set import set_of
from ramsis.profiles import ProfileSet, load

__all__ = ["Models", "Tritonserver", "calibrated", "cpu_s", "mlserver", "ours", "ours_in_triton",
           "ray", "site_of", "triton"]

APPS = Path(__file__).parent / "apps"
_STARTS_S = 120.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Models:
    """What is served.

    Attributes
    ----------
    variants : Path
        The variants file, beside which the ONNX files lie.
    names : sequence of str
    workers : int
        Processes that run models.
    batch : int
        The largest.
    """

    variants: Path
    names: Sequence[str]
    workers: int
    batch: int

    def file(self, name: str) -> Path:
        """The ONNX file of a model."""
        return (self.variants.parent / f"{name}.onnx").resolve()

    @property
    def core(self) -> int | None:
        """The core of a worker, where there is one beside that of server and client."""
        cores = sorted(os.sched_getaffinity(0))
        return cores[-1] if self.workers == 1 < len(cores) else None


def site_of(python: Path | None, package: str) -> Path | None:
    """Where an interpreter keeps its packages, if it has this one."""
    if python is None:
        return None
    found = subprocess.run(
        [str(python), "-c", "import importlib.util, sys, sysconfig\n"
         f"print(sysconfig.get_path('purelib')) if importlib.util.find_spec({package!r}) "
         "else sys.exit(1)"], capture_output=True, text=True, check=False)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def lacks(python: Path) -> list[str]:
    """Return the packages of `ramsis[serve]` that an interpreter lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement in needed]
    done = subprocess.run(
        [str(python), "-c", "import importlib.metadata as m, sys\nfor name in sys.argv[1:]:\n"
         " try: m.version(name)\n except m.PackageNotFoundError: print(name)", *names],
        capture_output=True, text=True, check=True)
    return done.stdout.split()


def cpu_s(process: int) -> float:
    """Processor time of a process and all that it has started, in s; of those that are left."""
    total = 0
    for one in family_of(process):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS_A_SECOND


def _wait_for(url: str, process: subprocess.Popen[str]) -> None:
    """Until a server answers 200 there."""
    ends_s = time.monotonic() + _STARTS_S
    while time.monotonic() < ends_s and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{url} does not answer")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def ours(
    models: Models, policies: Sequence[Policy], load_qps: float | None, folder: Path
) -> Iterator[Endpoint]:
    """`ramsis serve` with default options; the load is stated where it is known."""
    write_set(folder / "policies", set_of(list(policies)), created_by="scripts/league.py")
    stated = ["--load", repr(load_qps)] if load_qps is not None else []
    with serving([folder / "policies", "--variants", models.variants.resolve(), *stated],
                 folder) as endpoint:
        yield endpoint


def calibrated(
    models: Models, policy: Policy, seconds: float, folder: Path
) -> ProfileSet:
    """Service times through `ramsis serve`, by its own calibration; policies may be any."""
    write_set(folder / "policies", set_of([policy]), created_by="scripts/league.py")
    subprocess.run(
        [sys.executable, "-m", "ramsis", "serve", folder / "policies", "--variants",
         models.variants.resolve(), "--port", "0", "--calibrate", folder / "profile.json",
         "--calibrate-seconds", repr(seconds)],
        check=True, capture_output=True, text=True, cwd=folder,
        env={**os.environ, **ONE_THREAD})
    return load(str(folder / "profile.json"))


def _triton_model(
    models: Models, name: str, delay_ms: float, timeout_ms: float | None
) -> str:
    """The settings of a model: how long batches are waited for, and requests at most."""
    policy = "" if timeout_ms is None else f"""
  priority_levels: 2 default_priority_level: 1
  default_queue_policy {{ timeout_action: REJECT allow_timeout_override: true
    default_timeout_microseconds: {round(1000 * timeout_ms)} }}"""
    core = "" if models.core is None else str(models.core)
    parameters = "\n".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in
        (("file", models.file(name)), ("core", core)))
    return f"""backend: "python"
max_batch_size: {models.batch}
input [{{ name: "X" data_type: TYPE_FP32 dims: [4096] }}]
output [{{ name: "label" data_type: TYPE_INT64 dims: [1] }}]
dynamic_batching {{ max_queue_delay_microseconds: {round(1000 * delay_ms)} {policy} }}
instance_group [{{ kind: KIND_CPU count: {models.workers} }}]
{parameters}
"""


@contextlib.contextmanager
def triton(
    models: Models, site: Path, timeout_ms: float, folder: Path
) -> Iterator[dict[tuple[str, str], Endpoint]]:
    """Triton's dynamic batcher, by model and way: a delay, or a timeout for what waits."""
    ways = {"delay 0 ms": (0.0, None), "delay 2 ms": (2.0, None), "timeout": (0.0, timeout_ms)}
    places = {}
    for number, (name, way) in enumerate((n, w) for n in models.names for w in ways):
        places[name, way] = f"{name}-{number}"
        place = folder / "repository" / places[name, way]
        (place / "1").mkdir(parents=True)
        (place / "1" / "model.py").symlink_to(APPS / "triton_model.py")
        (place / "config.pbtxt").write_text(_triton_model(models, name, *ways[way]))
    with _tritonserver(site, folder) as (url, process):
        yield {key: Endpoint(f"{url}/{place}", process) for key, place in places.items()}


@contextlib.contextmanager
def ours_in_triton(
    models: Models, policies: Sequence[Policy], load_qps: float | None, site: Path, folder: Path
) -> Iterator[Endpoint]:
    """The model of `ramsis export triton`, told the load; its Python needs `ramsis[serve]`."""
    lacking = lacks(site.parents[2] / "bin" / "python")
    if lacking:
        raise RuntimeError(f"the Python of Triton lacks {', '.join(lacking)}; install "
                           "'ramsis[serve]' and 'numpy<2' there")
    write_set(folder / "policies", set_of(list(policies)), created_by="scripts/league.py")
    subprocess.run(
        [sys.executable, "-m", "ramsis", "export", "triton", folder / "policies", "--variants",
         models.variants.resolve(), "--out", folder / "repository"],
        check=True, capture_output=True, cwd=ROOT)
    (name,) = (place.name for place in (folder / "repository").iterdir() if place.is_dir())
    if load_qps is not None:
        with (folder / "repository" / name / "config.pbtxt").open("a") as config:
            config.write('parameters { key: "load_qps" value { string_value: '
                         f'"{load_qps!r}" }} }}\n')
    with _tritonserver(site, folder, f"{ROOT}{os.pathsep}{site}") as (url, process):
        yield Endpoint(f"{url}/{name}", process)


class Tritonserver:
    """Triton on the repository in a folder, at the same ports whenever it is started."""

    def __init__(self, site: Path, folder: Path, path: str = "") -> None:
        server = site / "pytriton" / "tritonserver"
        backend = folder / "backends" / "python"
        backend.mkdir(parents=True)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        for part in (*(server / "backends" / "python").iterdir(),
                     server / "python_backend_stubs" / python / "triton_python_backend_stub"):
            with contextlib.suppress(FileExistsError):
                (backend / part.name).symlink_to(part)
        http, grpc, metrics = _free_ports(3)
        self.url = f"http://127.0.0.1:{http}"
        self._folder = folder
        self._command = [
            str(server / "bin" / "tritonserver"), f"--model-repository={folder}/repository",
            f"--backend-directory={folder}/backends", "--http-address", "127.0.0.1",
            "--http-port", str(http), "--grpc-address", "127.0.0.1", "--grpc-port", str(grpc),
            "--metrics-port", str(metrics), "--exit-timeout-secs", "5"]
        # What runs the models takes the packages of the first python on the path.
        self._places = {"LD_LIBRARY_PATH": str(site / "nvidia_pytriton.libs"),
                        "PATH": f"{site.parents[2] / 'bin'}{os.pathsep}{os.environ['PATH']}",
                        "VIRTUAL_ENV": str(site.parents[2]), "PYTHONPATH": path}
        self._up = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> int:
        """Start it; return its process when it is ready."""
        process = self._up.enter_context(running(self._command, self._folder, self._places))
        self._process = process
        try:
            _wait_for(f"{self.url}/v2/health/ready", process)
        except TimeoutError as error:
            self._up.__exit__(type(error), error, error.__traceback__)
            raise
        return process.pid

    def kill(self) -> None:
        """Kill it at once, with all that it has started."""
        assert self._process is not None
        for process in reversed(family_of(self._process.pid)):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        self._up.close()

    def stop(self) -> None:
        """Stop it."""
        self._up.close()


@contextlib.contextmanager
def _tritonserver(site: Path, folder: Path, path: str = "") -> Iterator[tuple[str, int]]:
    """Triton on the repository in a folder: URL of its models, and its process."""
    server = Tritonserver(site, folder, path)
    with contextlib.ExitStack() as stack:
        process = server.start()
        stack.callback(server.stop)
        yield f"{server.url}/v2/models", process


@contextlib.contextmanager
def ray(models: Models, python: Path, folder: Path) -> Iterator[dict[str, Endpoint]]:
    """Ray Serve with `@serve.batch`, by model."""
    (port,) = _free_ports(1)
    core = "none" if models.core is None else str(models.core)
    command = [str(python), str(APPS / "ray_app.py"), str(port), str(models.workers), core,
               str(models.batch), "0.002",
               *(f"{name}={models.file(name)}" for name in models.names)]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
    with running(command, folder, quiet) as process:
        assert process.stdout is not None
        if not any("ready" in line for line in process.stdout):
            raise TimeoutError("Ray Serve does not start")
        yield {name: Endpoint(f"http://127.0.0.1:{port}/{name}/v2/models/{name}", process.pid)
               for name in models.names}


@contextlib.contextmanager
def mlserver(models: Models, python: Path, folder: Path) -> Iterator[dict[str, Endpoint]]:
    """MLServer's adaptive batching, by model."""
    http, grpc, metrics = _free_ports(3)
    (folder / "settings.json").write_text(json.dumps({
        "host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics,
        "parallel_workers": models.workers, "debug": False}))
    for name in models.names:
        (folder / name).mkdir()
        (folder / name / "model-settings.json").write_text(json.dumps({
            "name": name, "implementation": "mlserver_model.OnnxModel",
            "max_batch_size": models.batch, "max_batch_time": 0.002,
            "inputs": [{"name": "X", "datatype": "FP32", "shape": [-1, 4096]}],
            "outputs": [{"name": "label", "datatype": "INT64", "shape": [-1, 1]}],
            "parameters": {"extra": {"file": str(models.file(name)), "core": models.core}}}))
    command = [str(python.parent / "mlserver"), "start", str(folder)]
    with running(command, folder, {"PYTHONPATH": str(APPS)}) as process:
        _wait_for(f"http://127.0.0.1:{http}/v2/health/ready", process)
        yield {name: Endpoint(f"http://127.0.0.1:{http}/v2/models/{name}", process.pid)
               for name in models.names}
