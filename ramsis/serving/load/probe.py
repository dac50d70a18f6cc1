"""Probe of a server's overhead: sends one request after the other, and prints their overheads.

    python -m ramsis.serving.load.probe HOST PORT NAME COUNT

prints a JSON list: for each request the time from its sending to its answer, less the time from
its arrival to its batch's end; in ms. A policy may hold a request until others join it, which is
no overhead. No request is begun after half a minute.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time

from ramsis.serving.tensors import DATATYPES

_LONGEST_S = 30.0  # after which no request is sent, so that calibration ends on a slow server, too


def overheads_ms(host: str, port: int, name: str, count: int) -> list[float]:
    """Measure the time of requests other than waiting and service, in ms; the inputs are zeros."""
    path = f"/v2/models/{name}"
    connection = http.client.HTTPConnection(host, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        metadata = json.loads(connection.getresponse().read())
        inputs, sizes = [], 0
        for tensor in metadata["inputs"]:
            shape = [1, *tensor["shape"][1:]]
            size = DATATYPES[tensor["datatype"]].itemsize
            for length in shape:
                size *= length
            sizes += size
            inputs.append({**tensor, "shape": shape, "parameters": {"binary_data_size": size}})
        head = json.dumps({"inputs": inputs, "parameters": {"deadline_ms": 60000}}).encode()
        overheads: list[float] = []
        ends_s = time.perf_counter() + _LONGEST_S
        while len(overheads) < count and time.perf_counter() < ends_s:
            begun = time.perf_counter()
            connection.request("POST", path + "/infer", head + bytes(sizes),
                               {"Inference-Header-Content-Length": str(len(head))})
            answer = connection.getresponse()
            body = answer.read()
            took_ms = 1000.0 * (time.perf_counter() - begun)
            if answer.status == 200:
                parameters = json.loads(body)["parameters"]
                overheads.append(took_ms - parameters["waiting_ms"] - parameters["service_ms"])
    return overheads


def main() -> None:
    """Read the command line, and print the list."""
    host, port, name, count = sys.argv[1:]
    print(json.dumps(overheads_ms(host, int(port), name, int(count))))


if __name__ == "__main__":
    main()
