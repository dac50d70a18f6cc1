"""Policies in front of a real Triton: `ramsis serve --upstream`, its promise and its cost.

    python scripts/upstream.py --triton-python PYTHON --rows docs/results/upstream.csv
    python scripts/upstream.py --rows docs/results/upstream.csv

The first command runs Triton with two models of its Python backend that take stated times, as
models on an accelerator do: two instances of each. Service times are measured through the proxy,
policies are made for shares of the capacity, and each share gets Poisson arrivals. A further run
kills Triton and starts it again. The second command prints the kept rows.
PYTHON needs nvidia-pytriton and numpy, and is of the same version as this one.
"""

from __future__ import annotations

import csv
import http.client
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from live import peers
from live.fleet import serving
from study import answer_of, markdown, parser_of, read_rows, write_rows

MODELS = {"small": (10.0, 3.0, 0.75), "large": (20.0, 8.0, 0.93)}
"""First and further milliseconds of a batch, and the accuracy."""
WORKERS, BATCH, SLO_MS = 2, 8, 150.0
SHARES, KILLS_AT = "0.5,0.7,0.85", 0.5
COLUMNS = ("run", "load_qps", "requests", "unanswered", "failed", "dropped", "violation_rate",
           "effective_accuracy", "promised_effective_accuracy", "cpu_ms", "batch_1_ms",
           "dispatch_ms", "kills", "load_average")
_CONFIG = """backend: "python"
max_batch_size: %d
input [{ name: "X" data_type: TYPE_FP32 dims: [16] }]
output [{ name: "label" data_type: TYPE_INT64 dims: [1] }]
instance_group [{ kind: KIND_CPU count: %d }]
"""


def repository(folder: Path) -> None:
    """Write Triton's model repository."""
    for name, numbers in MODELS.items():
        place = folder / "repository" / name
        (place / "1").mkdir(parents=True)
        (place / "1" / "model.py").symlink_to(peers.APPS / "triton_timed.py")
        (place / "config.pbtxt").write_text(_CONFIG % (BATCH, WORKERS) + "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in zip(("first_ms", "each_ms", "accuracy"), numbers, strict=True)))


def profile(folder: Path, upstream: str) -> Path:
    """Measure service times through the proxy."""
    out = folder / "profile.json"
    (folder / "accuracy.json").write_text(json.dumps(
        {name: numbers[2] for name, numbers in MODELS.items()}))
    answer_of("profile", "measure", *(f"{upstream}/v2/models/{name}" for name in MODELS),
           "--backend", "upstream", "--batches", f"1:{BATCH}", "--accuracy",
           folder / "accuracy.json", "--min-samples", 40, "--max-samples", 40, "--out", out)
    return out


def sent(url: str, load_qps: float, requests: int, seed: int, data: Path) -> dict[str, Any]:
    """Send Poisson arrivals; return the client's row."""
    row: dict[str, Any] = answer_of(
        "load", url, "--slo-ms", SLO_MS, "--load", load_qps, "--duration-s",
        round(requests / load_qps, 3), "--seed", seed, "--data", data)["rows"][0]
    return row


def alone(triton: str, url: str, count: int = 100) -> tuple[float, float]:
    """Return the median time in ms of single requests to Triton, and what the proxy adds.

    Both for the model that the proxy chooses; the time that its policy waits is left out.
    """
    body = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16],
                                   "data": [0.5] * 16}]})
    through, direct = [], []
    for _ in range(count):
        took_ms, document = _asked(url, body)
        if "parameters" not in document:  # dropped, as the machine was busy
            continue
        parameters = document["parameters"]
        through.append(took_ms - parameters["waiting_ms"])
        direct.append(_asked(f"{triton}/v2/models/{parameters['variant']}", body)[0])
    return float(np.median(direct)), float(np.median(through) - np.median(direct))


_KEPT: dict[str, http.client.HTTPConnection] = {}


def _asked(url: str, body: str) -> tuple[float, Any]:
    authority, _, path = url.removeprefix("http://").partition("/")
    connection = _KEPT.setdefault(authority, http.client.HTTPConnection(authority, timeout=60))
    begun = time.perf_counter()
    connection.request("POST", f"/{path}/infer", body)
    answer = json.loads(connection.getresponse().read())
    return 1000.0 * (time.perf_counter() - begun), answer


def measured(
    site: Path, requests: int, shares: Sequence[float]
) -> Iterator[dict[str, Any]]:
    """A row for each share of the capacity, and one for the kills."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository(folder)
        data = folder / "data.npz"
        np.savez(data, X=np.zeros((64, 16), np.float32), label=np.ones((64, 1), np.int64))
        server = peers.Tritonserver(site, folder)
        server.start()
        try:
            file = profile(folder, server.url)
            first_ms, each_ms, _ = MODELS["small"]
            capacity_qps = 1000.0 * WORKERS * BATCH / (first_ms + each_ms * BATCH)
            loads = [round(share * capacity_qps) for share in shares]
            policies = folder / "policies"
            answer_of("generate", "--profiles", file, "--slo-ms", SLO_MS, "--workers", WORKERS,
                   "--load", ",".join(map(str, loads)), "--service", "distribution", "--dispatch",
                   "central-queue", "--max-queue", BATCH, "--headroom", 0, "--out", policies)
            manifest = json.loads((policies / "manifest.json").read_text())
            for run, load_qps in enumerate(loads):
                with serving([policies, "--upstream", server.url, "--load", load_qps],
                             Path(tempfile.mkdtemp(dir=folder))) as proxy:
                    direct_ms, added_ms = alone(server.url, proxy.url)
                    sent(proxy.url, load_qps, load_qps, 1000, data)  # caches are cold
                    before_s, load_average = peers.cpu_s(proxy.process), os.getloadavg()[0]
                    row = sent(proxy.url, load_qps, requests, run, data)
                    spent_s = peers.cpu_s(proxy.process) - before_s
                    yield _row(f"{shares[run]:.0%} of the capacity", row, load_qps, load_average,
                               promised_effective_accuracy=_promise(manifest, load_qps),
                               cpu_ms=1000.0 * spent_s / row["requests"], batch_1_ms=direct_ms,
                               dispatch_ms=added_ms, unanswered=row["failed"])
            load_qps, log = round(KILLS_AT * capacity_qps), folder / "requests.csv"
            with serving([policies, "--upstream", server.url, "--retry", "--load", load_qps,
                          "--request-log", log], Path(tempfile.mkdtemp(dir=folder))) as proxy:
                stopped, kills = threading.Event(), []

                def kill() -> None:
                    while not stopped.wait(8.0):
                        server.kill()
                        kills.append(server.start())

                killer = threading.Thread(target=kill)
                killer.start()
                load_average = os.getloadavg()[0]
                row = sent(proxy.url, load_qps, 40 * load_qps, 7, data)
                stopped.set()
                killer.join()
            with log.open(newline="") as stream:
                failed = sum("failed" in line.values() for line in csv.DictReader(stream))
            yield _row("Triton killed", row, load_qps, load_average, kills=len(kills),
                       unanswered=row["failed"] - failed)
        finally:
            server.stop()


def _promise(manifest: Any, load_qps: float) -> float:
    return next(float(level["expected_effective_accuracy"]) for level in manifest["levels"]
                if level["load_qps"] == load_qps)


def _row(
    run: str, seen: dict[str, Any], load_qps: float, load_average: float, **more: float
) -> dict[str, Any]:
    row = {"run": run, "load_qps": load_qps, "load_average": round(load_average, 1), **more,
           **{name: seen[name] for name in ("requests", "failed", "dropped", "violation_rate",
                                            "effective_accuracy")}}
    return {name: row.get(name) for name in COLUMNS}


def table(rows: Sequence[dict[str, str]]) -> str:
    """Markdown of the kept rows."""
    def number(row: dict[str, str], name: str, form: str) -> str:
        return format(float(row[name]), form) if row[name] else "–"

    return markdown(
        ["run", "requests/s", "promised", "delivered", "violations", "requests",
         "without an answer", "503", "500", "processor time (ms/request)", "Triton alone (ms)",
         "proxy adds (ms)", "load average"],
        [[row["run"] + (f" {row['kills']} times" if row["kills"] else ""),
          number(row, "load_qps", ".0f"), number(row, "promised_effective_accuracy", ".4f"),
          number(row, "effective_accuracy", ".4f"), number(row, "violation_rate", ".2%"),
          row["requests"], row["unanswered"], row["dropped"],
          str(int(row["failed"]) - int(row["unanswered"])), number(row, "cpu_ms", ".2f"),
          number(row, "batch_1_ms", ".1f"), number(row, "dispatch_ms", ".1f"),
          row["load_average"]] for row in rows])


def main() -> None:
    """Measure, or write what was measured."""
    parser = parser_of(__doc__)
    parser.add_argument("--triton-python", type=Path, help="interpreter that has nvidia-pytriton")
    parser.add_argument("--rows", type=Path, required=True, help="file of the rows")
    parser.add_argument("--shares", default=SHARES, help="of the capacity")
    parser.add_argument("--requests", type=int, default=34_000, help="of each run")
    options = parser.parse_args()
    if options.triton_python is not None:
        site = peers.site_of(options.triton_python, "pytriton")
        if site is None:
            raise SystemExit(f"error: {options.triton_python} has no nvidia-pytriton")
        shares = [float(share) for share in options.shares.split(",")]
        write_rows(options.rows, measured(site, options.requests, shares))
    print(table(read_rows(options.rows)))


if __name__ == "__main__":
    main()
