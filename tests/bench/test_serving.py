"""What the server adds to a request: its time and memory, by its own log and without inference."""

import json
import re
from typing import Any

import numpy as np
import psutil
import pytest

from ramsis.audit.request_log import RequestLog, read_request_log
from ramsis.policy import write_set
from ramsis.policy.policy_set import set_of
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy
from tests.bench.timing import Timing, process
from tests.serving.servers import Running, running

FUNCTION = """
import numpy as np

def empty(x):
    return {"size": np.full(len(x), len(x), np.int32)}
"""
VARIANTS = """
name = "empty"
[[variants]]
name = "empty"
backend = "callable"
model = "nothing:empty"
accuracy = 0.5
[[inputs]]
name = "x"
datatype = "FP32"
shape = [16]
"""
BATCHES = (1, 2, 4, 8, 16, 32)


@pytest.fixture
def server(tmp_path):
    """A server of a model that does nothing, one worker, requests written to a log."""
    (tmp_path / "nothing.py").write_text(FUNCTION)
    (tmp_path / "variants.toml").write_text(VARIANTS)
    profile = ProfileSet("empty", (ModelProfile("empty", 0.5, tuple(
        BatchProfile(b, p95_ms=0.1) for b in BATCHES)),))
    settings = SynthesisSettings(slo_ms=100.0, workers=1, grid="fixed:20")
    write_set(tmp_path / "policies", set_of([
        generate_policy(profile, load, settings) for load in (500.0, 2000.0)]),
        created_by="benchmark")
    with running(tmp_path, "--request-log", str(tmp_path / "log.csv")) as served:
        yield served


def sent(server: Running, load_qps: int, seconds: int) -> dict[str, Any]:
    """The row of a load generator."""
    printed, _ = process("-m", "ramsis", "load", f"http://{server.host}:{server.port}", "--model",
                         "empty", "--slo-ms", "1000", "--load", str(load_qps), "--duration-s",
                         str(seconds), "--json")
    row: dict[str, Any] = json.loads(printed)["rows"][0]
    return row


def stopped(server: Running) -> RequestLog:
    """What the server wrote, once it has ended."""
    server.process.terminate()
    server.process.wait(30)
    return read_request_log(server.folder / "log.csv")


def test_overhead_of_a_request(benchmark, ledger, server):
    sent(server, 500, 2)  # caches and connections
    row = benchmark.pedantic(lambda: sent(server, 500, 20), rounds=1)
    assert row["failed"] == 0
    assert row["requests"] > 9000
    ledger.share("answers in time, 500 requests/s", row["served"] / row["requests"], 1.0)
    log = stopped(server)
    took_s = (log.finish_s - log.arrival_s)[-row["requests"]:]
    took_s = took_s[np.isfinite(took_s)]
    for name, share, target_s in (("median", 0.5, 0.001), ("99 %", 0.99, 0.005)):
        value = float(np.quantile(took_s, share))
        ledger.time(f"server's part of a request at 500/s, {name}", Timing(value, value), target_s)


def test_requests_of_empty_models(benchmark, ledger, server):
    front_end = psutil.Process(server.process.pid)
    sent(server, 500, 2)
    before_mb, before = front_end.memory_info().rss / 1e6, front_end.cpu_times()
    row = benchmark.pedantic(lambda: sent(server, 2000, 15), rounds=1)
    after_mb, after = front_end.memory_info().rss / 1e6, front_end.cpu_times()
    assert row["requests"] > 28_000
    ledger.share("answers in time, 2,000 requests/s", row["served"] / row["requests"], 1.0)
    cpu_s = (after.user + after.system - before.user - before.system) / row["requests"]
    ledger.time("front end, processor time for each request", Timing(cpu_s, cpu_s), 0.0005)
    ledger.memory(f"front end, growth over {row['requests']} requests",
                  max(0.0, after_mb - before_mb), 20.0)
    assert re.search("ramsis_", server.ask("GET", "/metrics")[2].decode())
