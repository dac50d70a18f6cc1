"""Asks a server one request after the other, and prints what they took besides the model.

    python -m ramsis.serving.load.probe HOST PORT NAME QUERIES COUNT

prints a JSON list: for each request the time from its sending to its answer, less the time from
the start of its batch to the batch's end; in ms. A request has so many QUERIES: a policy may hold
fewer than its largest batch until others join them, and that wait is no overhead.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time

from ramsis.serving.tensors import DATATYPES


def overheads_ms(host: str, port: int, name: str, queries: int, count: int) -> list[float]:
    """What so many requests took besides the model, in ms; zeros are sent."""
    path = f"/v2/models/{name}"
    connection = http.client.HTTPConnection(host, port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        metadata = json.loads(connection.getresponse().read())
        inputs, sizes = [], 0
        for given in metadata["inputs"]:
            shape = [queries, *given["shape"][1:]]
            size = DATATYPES[given["datatype"]].itemsize
            for length in shape:
                size *= length
            sizes += size
            inputs.append({**given, "shape": shape, "parameters": {"binary_data_size": size}})
        head = json.dumps({"inputs": inputs, "parameters": {"deadline_ms": 60000}}).encode()
        found = []
        for _ in range(count):
            begun = time.perf_counter()
            connection.request("POST", path + "/infer", head + bytes(sizes),
                               {"Inference-Header-Content-Length": str(len(head))})
            answer = connection.getresponse()
            body = answer.read()
            took_ms = 1000.0 * (time.perf_counter() - begun)
            if answer.status == 200:
                served_ms = str(json.loads(body)["parameters"]["service_ms"]).split(",")
                found.append(took_ms - max(map(float, served_ms)))
    return found


def main() -> None:
    """Read the command line, and print the list."""
    host, port, name, queries, count = sys.argv[1:]
    print(json.dumps(overheads_ms(host, int(port), name, int(queries), int(count))))


if __name__ == "__main__":
    main()
