"""A small server of the Open Inference Protocol in this process, as an upstream for tests."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

_LENGTH = "Inference-Header-Content-Length"


class FakeUpstream(ThreadingHTTPServer):
    """Serves the models ``fast`` and ``slow``, which add up three numbers; it can misbehave."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.binary = True  # whether tensors travel as bytes
        self.most = 64  # largest batch
        self.shapes = {"fast": [-1, 3], "slow": [-1, 3]}  # of the models' inputs
        self.datatype = "FP32"
        self.delay_s = 0.0  # of each inference
        self.failure: tuple[int, str] | None = None  # status and reason of each inference
        self.asked: list[tuple[str, int]] = []  # model and size of each batch
        self.busy = self.most_busy = 0  # inferences at once
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeUpstream
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Write no log."""

    def do_GET(self) -> None:
        upstream, name = self.server, self.path.rpartition("/")[2]
        if self.path == "/v2":
            extensions = ["binary_tensor_data"] if upstream.binary else []
            self._answer(200, {"name": "fake", "version": "1", "extensions": extensions})
        elif name in upstream.shapes:
            self._answer(200, {"name": name, "inputs": [
                {"name": "x", "datatype": upstream.datatype, "shape": upstream.shapes[name]}]})
        else:
            self._answer(404, {"error": f"unknown model: {name}"})

    def do_POST(self) -> None:
        upstream, name = self.server, self.path.split("/")[-2]
        content = self.rfile.read(int(self.headers["Content-Length"]))
        with upstream.lock:
            upstream.busy += 1
            upstream.most_busy = max(upstream.most_busy, upstream.busy)
        time.sleep(upstream.delay_s)
        end = int(self.headers.get(_LENGTH, len(content)))
        (tensor,) = json.loads(content[:end])["inputs"]
        values = np.array(tensor["data"], "f4") if "data" in tensor else np.frombuffer(
            content[end:], "<f4")
        sums = values.reshape(tensor["shape"]).sum(axis=1)
        with upstream.lock:
            upstream.busy -= 1
            upstream.asked.append((name, len(sums)))
        output = {"name": "sum", "datatype": "FP32", "shape": [len(sums)]}
        if upstream.failure is not None:
            self._answer(upstream.failure[0], {"error": upstream.failure[1]})
        elif len(sums) > upstream.most:
            self._answer(400, {"error": f"batch-size must be <= {upstream.most}"})
        elif upstream.binary:
            data = sums.tobytes()
            self._answer(200, {"outputs": [
                {**output, "parameters": {"binary_data_size": len(data)}}]}, data)
        else:
            self._answer(200, {"outputs": [{**output, "data": sums.tolist()}]})

    def _answer(self, status: int, document: Any, data: bytes = b"") -> None:
        head = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(head) + len(data)))
        if data:
            self.send_header(_LENGTH, str(len(head)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(head + data)


@contextlib.contextmanager
def upstream(port: int = 0) -> Iterator[FakeUpstream]:
    """A server that runs until the end."""
    with FakeUpstream(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
