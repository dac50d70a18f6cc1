"""The batching library of a policy inside a stock Triton: its batches, and those of the runtime.

    PYTHONPATH=scripts python -m live.triton_batching --triton-python PYTHON \\
        --rows docs/results/triton-batching.csv

Makes a policy for requests with a size, writes its batching library with `ramsis export triton
--batching`, and has Triton's own scheduler batch 100,000 short texts with it, as many in flight as
connections. The model is one of Triton's Python backend, which takes the stated time of a batch,
scaled, and records the requests of each batch in their order; as times are scaled, none is
rejected for its age. As one instance takes the queue in its order, that is the order of arrival:
the runtime's rule is asked for it again. A batch is

- as the rule: it takes all of its requests, and refuses the first of the next batch;
- short: the rule would have taken the next request, too, which was sent less than ``SENT_MS``
  before the batch began, so Triton had not got it yet, or not at all;
- different: anything else.

A second row is Triton without the library. PYTHON needs nvidia-pytriton and numpy, and is of the
same version as this one. Without it the kept rows are printed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sized import CELLS
from study import markdown, parser_of, write_rows

from live import peers
from ramsis.cli.main import cli
from ramsis.runtime.sized import ArrivalBatch, SizedRule
from ramsis.serving.export.triton import LIMIT
from ramsis.sized.policy import generate_sized, write_sized

CELL, LOAD_QPS, SCALE = "gpu", 3600.0, 0.7
REQUESTS, CONNECTIONS, SENT_MS = 100_000, 400, 50.0
_CONFIG = """backend: "python"
max_batch_size: 64
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }]
output [{ name: "count" data_type: TYPE_INT32 dims: [1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


class Sent(NamedTuple):
    """What became of the requests."""

    at_s: list[float]  # when each was sent, on the clock of the machine
    answered: int
    rejected: int


class Counts(NamedTuple):
    """Batches of Triton, as the module's text tells them apart."""

    as_rule: int
    short: int
    different: int


def compared(
    rule: SizedRule, limit_ms: float, batches: Sequence[tuple[float, Sequence[int]]],
    sizes: Sequence[int], sent_s: Sequence[float],
) -> Counts:
    """Compare recorded batches (begin in s, and requests) with those of the rule."""
    counts = [0, 0, 0]
    for number, (begun_s, requests) in enumerate(batches):
        batch = ArrivalBatch(rule, limit_ms)
        kept = all(batch.joins(sizes[request]) for request in requests)
        following = batches[number + 1][1][0] if number + 1 < len(batches) else None
        refused = following is None or not batch.joins(sizes[following])
        sent_late = following is not None and (
            sent_s[following] > begun_s - SENT_MS / 1000.0)
        counts[0 if kept and refused else 1 if kept and sent_late else 2] += 1
    return Counts(*counts)


async def sent(url: str, sizes: Sequence[int]) -> Sent:
    """Send requests over all connections, each as soon as the one before is answered."""
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    at_s, statuses, left = [0.0] * len(sizes), dict[int, int](), iter(range(len(sizes)))

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in left:
            body = json.dumps({"id": str(number), "inputs": [{
                "name": "X", "datatype": "FP32", "shape": [1, sizes[number]],
                "data": [1] * sizes[number]}]}).encode()
            at_s[number] = time.monotonic()
            writer.write(f"POST /{path}/infer HTTP/1.1\r\nHost: {host}\r\nContent-Length: "
                         f"{len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = int(head.split()[1])
            await reader.readexactly(int(head.split("content-length:")[1].split()[0]))
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return Sent(at_s, statuses.get(200, 0), sum(statuses.values()) - statuses.get(200, 0))


def row(
    run: str, rule: SizedRule, sizes: Sequence[int], site: Path, folder: Path, lines: str
) -> dict[str, Any]:
    """Return the row of a Triton whose model has some lines of configuration more."""
    place, record = folder / "repository" / "encoder", folder / "batches.txt"
    (place / "1").mkdir(parents=True)
    (place / "1" / "model.py").symlink_to(peers.APPS / "triton_sized.py")
    times = [[rule.time_ms(0, count, size) * SCALE / 1000.0 for size in
              range(1, rule.max_size + 1)] for count in range(1, rule.most + 1)]
    (folder / "times.json").write_text(json.dumps(times))
    (place / "config.pbtxt").write_text(_CONFIG + lines + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
        for key, value in (("times", folder / "times.json"), ("record", record))))
    begun_s = time.monotonic()
    with peers._tritonserver(site, folder) as (url, _):
        result = asyncio.run(sent(f"{url}/encoder", sizes))
    batches = [(float(begun), list(map(int, requests))) for begun, *requests in
               map(str.split, record.read_text().splitlines())]
    limit_ms = LIMIT * rule.tables.slo_ms
    taken_ms = [rule.time_ms(0, len(requests), max(sizes[request] for request in requests))
                for _, requests in batches]
    return {"run": run, "requests": len(sizes), "answered": result.answered,
            "rejected": result.rejected,
            "lost": len(sizes) - result.answered - result.rejected, "batches": len(batches),
            **compared(rule, limit_ms, batches, sizes, result.at_s)._asdict(),
            "over_limit": sum(time_ms > max(limit_ms, rule.time_ms(0, 1, max(
                sizes[request] for request in requests)))
                for time_ms, (_, requests) in zip(taken_ms, batches, strict=True)),
            "largest_batch_ms": max(taken_ms), "mean_batch": float(np.mean(
                [len(requests) for _, requests in batches])),
            "duration_s": time.monotonic() - begun_s, "load_average": os.getloadavg()[0]}


def table(rows: pd.DataFrame) -> str:
    """Return kept rows as a table in Markdown."""
    return markdown(
        ["Triton", "requests", "lost", "batches", "as the rule", "short", "different",
         "over the limit", "mean batch", "longest batch, ms"],
        [["with the library" if row["run"] == "library" else "alone",
          *(f"{row[name]:,.0f}" for name in ("requests", "lost", "batches", "as_rule", "short",
                                           "different", "over_limit")),
          f"{row['mean_batch']:,.1f}", f"{row['largest_batch_ms']:,.1f}"]
         for _, row in rows.iterrows()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run Triton with the library and without, and keep the rows, or write their table."""
    parser = parser_of(__doc__)
    parser.add_argument("--triton-python", type=Path)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args(arguments)
    if options.triton_python is not None:
        write_rows(options.rows, measured(options.triton_python, options.requests))
    print(table(pd.read_csv(options.rows)))
    return 0


def measured(python: Path, requests: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Triton with the library and of one without."""
    site = peers.site_of(python, "pytriton")
    if site is None:
        raise SystemExit(f"error: {python} has no nvidia-pytriton")
    cell = CELLS[CELL]
    policy = generate_sized(cell.problem(), cell.profile(), LOAD_QPS)
    rule, sizes = SizedRule(policy.tables), cell.sizes().sample(
        requests, np.random.default_rng(0)).tolist()
    for run in ("library", "stock"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = "dynamic_batching { }\n"
            if run == "library":
                write_sized([policy], folder / "sized", "scripts/live/triton_batching.py")
                cli.main(["export", "triton", str(folder / "sized"), "--batching", "--size", "X:1",
                          "--out", str(folder / "batching")], standalone_mode=False)
                lines = re.sub(r"(timeout_microseconds: )\d+", r"\g<1>60000000",
                               (folder / "batching" / "batching.pbtxt").read_text())
            yield row(run, rule, sizes, site, folder, lines)


if __name__ == "__main__":
    sys.exit(main())
