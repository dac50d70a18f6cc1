"""`ramsis serve` beside other model servers: the same models, requests, arrivals and client.

    python -m pip install -e '.[measure,serve,plot]'
    python scripts/league.py --quick --json league.json --page docs/league.md

Support vector machines that read digits are trained once (kept in --models), and their service
times measured anew, through `ramsis serve --calibrate`. Then each server gets the same open-loop
arrivals from the same `ramsis load`: Poisson arrivals at shares of the capacity, bursts, and loads
that change. All servers are up, and are asked one at a time, in turns of a few seconds, so that
slow spells of the machine fall on all of them. Ours runs with default options, by policies of a
central queue and of queues of single workers. The others run one model each: models that can
carry the load by their profile are tried, and the best one *in hindsight* is what the table has.
The capacity is that of the fastest model, or what client and front end can take if that is less.

--triton-python names an interpreter that has nvidia-pytriton (of the same version of Python as
this one), numpy<2 and ramsis[serve]; --ray-python and --mlserver-python those that have ray[serve]
or mlserver, and onnxruntime. A server that is not there is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from live import peers
from live.fleet import Endpoint, host_times, stolen_share
from live.models import BATCHES, Served, prepared
from live.peers import Models
from study import markdown, parser_of, say, with_part, write_part

from ramsis.errors import RamsisError
from ramsis.files import write_atomic
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis import SynthesisSettings, generate_policy

OURS: Mapping[str, Mapping[str, Any]] = {
    "central queue": {"dispatch": "central-queue"},
    "round robin": {"dispatch": "round-robin"},
}
"""Ways of `ramsis serve`, and what policies are made with."""
FIGURES = ("effective_accuracy", "violation_rate", "response_p50_ms", "response_p99_ms",
           "cpu_ms", "promised_effective_accuracy", "stolen_share")
"""Of a row; the means of its runs."""
LEVELS = (0.2, 0.4, 0.6, 0.8, 0.95)
"""Shares of the capacity that have a policy where the load changes."""
ABOVE = (1.0, 1.1, 1.2, 1.35, 1.5)
"""Loads that have a policy where one is stated, as multiples of it: for batches that are slow."""
WARM_UP_S, CALIBRATION_S = 1.0, 20.0


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    workers: tuple[int, ...]
    shares: tuple[float, ...]
    others: tuple[str, ...]
    duration_s: float
    repeats: int
    tried: int
    samples: int


QUICK = Plan((1,), (0.5, 0.85), (), 2.0, 3, 2, 40)
FULL = Plan((1, 2), (0.3, 0.5, 0.7, 0.85, 0.95), ("bursts", "trace"), 4.0, 15, 4, 200)
SIZES = (1600, 3200, 6400)


@dataclass(frozen=True)
class Arrivals:
    """What is sent: options of `ramsis load`, its mean load, and what ours is told of it."""

    name: str
    options: tuple[str, ...]
    load_qps: float
    stated_qps: float | None


@dataclass(frozen=True)
class Case:
    """Some workers on this machine."""

    models: Models
    data: Path
    profile: ProfileSet
    slo_ms: float
    plan: Plan
    capacity_qps: float

    def arrivals(self, folder: Path) -> Iterator[Arrivals]:
        """All that are sent, one after the other."""
        for share in self.plan.shares:
            load_qps = round(share * self.capacity_qps, 3)
            yield Arrivals(f"Poisson, {share:.0%}", ("--load", repr(load_qps)), load_qps,
                           load_qps)
        half_qps = round(0.5 * self.capacity_qps, 3)
        if "bursts" in self.plan.others:
            yield Arrivals("bursts, 50%", ("--load", repr(half_qps), "--arrivals",
                                           "mmpp:ratio=3,burst-ms=500,share=0.2"), half_qps, None)
        if "trace" in self.plan.others:
            file = folder / "trace.txt"
            shares = (0.3, 0.6, 0.9, 0.4)
            each_s = self.plan.duration_s / len(shares)
            file.write_text("".join(f"{i * each_s:g} {share * self.capacity_qps:.3f}\n"
                                    for i, share in enumerate(shares)))
            yield Arrivals("loads that change", ("--trace", str(file)),
                           float(np.mean(shares)) * self.capacity_qps, None)

    @classmethod
    def calibrated(
        cls, served: Served, workers: int, slo_ms: float, plan: Plan, most_qps: float
    ) -> Case:
        """A case whose service times are measured anew through our server."""
        names = [model.name for model in served.profile.models]
        models = Models(served.variants, names, workers, BATCHES[-1])
        rough = cls(models, served.data, served.profile, slo_ms, plan, most_qps)
        half = Arrivals("", (), 0.5 * most_qps, 0.5 * most_qps)
        with tempfile.TemporaryDirectory() as folder:
            policy = rough.policies(half, OURS["central queue"])[0]
            say(f"{workers} worker(s): measuring service times through the server")
            profile = peers.calibrated(models, policy, CALIBRATION_S, Path(folder))
        fastest = profile.latency_table("mean", models.batch)
        each_qps = 1000.0 * float(
            (np.arange(1, models.batch + 1) / fastest.latency_ms).max())
        return replace(rough, profile=profile, capacity_qps=min(workers * each_qps, most_qps))

    def policies(self, arrivals: Arrivals, chosen: Mapping[str, Any]) -> list[Policy]:
        """For the load where it is known and some above it, else for loads up to the capacity."""
        loads_qps = ([times * arrivals.stated_qps for times in ABOVE]
                     if arrivals.stated_qps is not None
                     else [share * self.capacity_qps for share in LEVELS])
        queue = self.models.batch - (chosen["dispatch"] == "round-robin")
        return [generate_policy(self.profile, load_qps, SynthesisSettings(
            slo_ms=self.slo_ms, workers=self.models.workers, service="distribution",
            max_queue=queue, **chosen)) for load_qps in loads_qps]

    def tried(self, load_qps: float) -> list[str]:
        """The most accurate models that can carry a load by their profile, or the fastest."""
        table = self.profile.latency_table("mean", self.models.batch)
        sizes = np.arange(1, self.models.batch + 1)
        carried = 1000.0 * self.models.workers * (sizes / table.latency_ms).max(axis=1)
        accuracy = {model.name: model.accuracy for model in self.profile.models}
        able = [n for n, qps in zip(table.models, carried, strict=True) if qps >= load_qps]
        fastest = table.models[int(np.argmax(carried))]
        return sorted(able or [fastest], key=lambda n: -accuracy[n])[:self.plan.tried]

    def slowest_ms(self, name: str) -> float:
        """95th percentile of a model's largest batch."""
        table = self.profile.latency_table("p95", self.models.batch)
        return float(table.latency_ms[table.models.index(name), -1])

    def asked(
        self, endpoint: Endpoint, arrivals: Arrivals, seed: int
    ) -> dict[str, float | int | None]:
        """Send the arrivals; what the client saw."""
        before, before_s = host_times(), peers.cpu_s(endpoint.process)
        row = self._load(endpoint, arrivals.options, self.plan.duration_s, seed)
        spent_s = peers.cpu_s(endpoint.process) - before_s
        if row["failed"] > 0.5 * row["requests"]:
            raise RuntimeError(f"{endpoint.url}: {row['failed']} of {row['requests']} failed")
        return {**{name: row[name] for name in FIGURES[:4]},
                "effective_accuracy": row["effective_accuracy"] or 0.0,  # none was in time
                "cpu_ms": 1000.0 * spent_s / row["requests"],
                "stolen_share": stolen_share(before, host_times()),
                "sent_late_p99_ms": row["lag_p99_ms"], "failed": row["failed"]}

    def warm_up(self, endpoint: Endpoint, arrivals: Arrivals) -> None:
        """Send half of the load for a second."""
        self._load(endpoint, ("--load", repr(0.5 * arrivals.load_qps)), WARM_UP_S, 1000)

    def _load(
        self, endpoint: Endpoint, options: Sequence[str], duration_s: float, seed: int
    ) -> dict[str, Any]:
        timed = () if "--trace" in options else ("--duration-s", str(duration_s))
        done = subprocess.run(
            [sys.executable, "-m", "ramsis", "load", endpoint.url, "--slo-ms", f"{self.slo_ms:g}",
             *options, *timed, "--seed", str(seed), "--data", str(self.data), "--json"],
            capture_output=True, text=True, preexec_fn=self._leave_core)
        if done.returncode:
            raise RuntimeError(f"{endpoint.url}: {done.stderr[-500:]}")
        row: dict[str, Any] = json.loads(done.stdout)["rows"][0]
        return row

    def _leave_core(self) -> None:
        """Keep the client off the core of the worker, where it has one."""
        if self.models.core is not None:
            os.sched_setaffinity(0, os.sched_getaffinity(0) - {self.models.core})


@dataclass(frozen=True)
class Entrant:
    """A server that is up, and what it runs; `promise` is an effective accuracy, if it has one."""

    server: str
    model: str
    endpoint: Endpoint
    promise: float | None = None


@dataclass(frozen=True)
class Others:
    """What there is of other servers, by where it is installed; None where it is not."""

    triton: Path | None
    ray: Path | None
    mlserver: Path | None

    @classmethod
    def found(
        cls, triton_python: Path | None, ray_python: Path | None, mlserver_python: Path | None
    ) -> Others:
        """Look for them, and say which are not there."""
        triton = peers.site_of(triton_python, "pytriton")
        ray, mlserver = (python if peers.site_of(python, name) else None for python, name in
                         ((ray_python, "ray"), (mlserver_python, "mlserver")))
        for name, place in (("Triton", triton), ("Ray Serve", ray), ("MLServer", mlserver)):
            if place is None:
                say(f"{name} is not installed, and is left out")
        return cls(triton, ray, mlserver)

    @contextlib.contextmanager
    def up(self, case: Case, arrivals: Arrivals, folder: Path) -> Iterator[list[Entrant]]:
        """All servers, until the end; one that does not start is left out, which is said."""
        models = replace(case.models, names=case.tried(arrivals.load_qps))
        with contextlib.ExitStack() as stack:
            def ours(
                way: str, chosen: Mapping[str, Any],
                server: Callable[..., contextlib.AbstractContextManager[Endpoint]],
            ) -> list[Entrant]:
                policies = case.policies(arrivals, chosen)
                promise = (policies[0].expectations.effective_accuracy
                           if arrivals.stated_qps is not None else None)
                return [Entrant(way, "by policy", stack.enter_context(
                    server(models, policies, folder=_new(folder))), promise)]

            def triton(site: Path) -> list[Entrant]:
                timeout_ms = max(case.slo_ms - max(map(case.slowest_ms, models.names)), 1.0)
                endpoints = stack.enter_context(
                    peers.triton(models, site, timeout_ms, _new(folder)))
                return [Entrant(f"Triton, {way}", name, endpoint)
                        for (name, way), endpoint in endpoints.items()]

            def other(server: Any, title: str, python: Path) -> list[Entrant]:
                endpoints = stack.enter_context(server(models, python, _new(folder)))
                return [Entrant(title, name, endpoint) for name, endpoint in endpoints.items()]

            starts = [partial(ours, f"ramsis serve, {way}", chosen,
                              partial(peers.ours, load_qps=arrivals.stated_qps))
                      for way, chosen in OURS.items()]
            if self.triton is not None:
                starts += [partial(ours, "ramsis in Triton", OURS["central queue"],
                                   partial(peers.ours_in_triton, site=self.triton,
                                           load_qps=arrivals.stated_qps)),
                           partial(triton, self.triton)]
            for server, title, python in (
                    (peers.ray, "Ray Serve, @serve.batch", self.ray),
                    (peers.mlserver, "MLServer, adaptive batching", self.mlserver)):
                if python is not None:
                    starts.append(partial(other, server, title, python))
            found: list[Entrant] = []
            for start in starts:
                with _left_out():
                    found += start()
            yield found


@contextlib.contextmanager
def _left_out() -> Iterator[None]:
    """Say what fails, and go on without it."""
    try:
        yield
    except (RamsisError, RuntimeError, OSError) as error:
        say(f"left out: {error}")


def _new(folder: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=folder))


def rows(case: Case, others: Others) -> Iterator[dict[str, Any]]:
    """A row for each run; servers take turns, and begin with another one in each round."""
    with tempfile.TemporaryDirectory() as name:
        for arrivals in case.arrivals(Path(name)):
            with others.up(case, arrivals, Path(name)) as entrants:
                for entrant in entrants:
                    with _left_out():
                        case.warm_up(entrant.endpoint, arrivals)
                for seed in range(case.plan.repeats):
                    first = seed % max(len(entrants), 1)
                    for entrant in entrants[first:] + entrants[:first]:
                        with _left_out():
                            seen = case.asked(entrant.endpoint, arrivals, seed)
                            say(f"{case.models.workers} worker(s), {arrivals.name}: "
                                f"{entrant.server}, {entrant.model}: "
                                "{effective_accuracy:.4f}, {violation_rate:.2%} violations"
                                .format(**seen))
                            yield {
                                "workers": case.models.workers, "arrivals": arrivals.name,
                                "load_qps": arrivals.load_qps, "server": entrant.server,
                                "model": entrant.model, "seed": seed,
                                "promised_effective_accuracy": entrant.promise, **seen}


def best(found: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the means of each server's runs, by its model that was best in hindsight."""
    case = ["workers", "arrivals", "load_qps", "server"]
    runs = pd.DataFrame(found).astype(dict.fromkeys(FIGURES, float)).groupby(
        [*case, "model"], sort=False)
    means = runs[list(FIGURES)].mean().assign(repeats=runs.size()).reset_index()
    chosen = means.groupby(case, sort=False)["effective_accuracy"].idxmax()
    return means.loc[chosen].reset_index(drop=True)


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Markdown, a row for each server, with the load in the first; the best of a load in bold."""
    def text(value: float, form: str) -> str:
        return "–" if np.isnan(value) else format(value, form)

    rows = best(found)
    load = [f"{row.workers} × {row.arrivals}, {row.load_qps:.0f}/s" for row in rows.itertuples()]
    top = rows.groupby(["workers", "arrivals"])["effective_accuracy"].transform("max")
    return markdown(
        ("load", "server", "model", "effective accuracy", "promised", "violations", "p99 (ms)",
         "processor time (ms/request)", "taken by the host"),
        [[load[i] if i == 0 or load[i] != load[i - 1] else "", row["server"], row["model"],
          f"**{row['effective_accuracy']:.4f}**" if row["effective_accuracy"] == top[i]
          else f"{row['effective_accuracy']:.4f}",
          text(row["promised_effective_accuracy"], ".4f"), f"{row['violation_rate']:.2%}",
          text(row["response_p99_ms"], ".1f"), f"{row['cpu_ms']:.2f}",
          text(row["stolen_share"], ".1%")] for i, row in enumerate(rows.to_dict("records"))])


def figure(found: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Effective accuracy and violations over the Poisson loads of the fewest workers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = best(found)
    shown = rows[(rows["workers"] == rows["workers"].min())
                 & rows["arrivals"].str.startswith("Poisson")].sort_values("load_qps")
    mpl.rcParams["svg.hashsalt"] = "league"
    drawn, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for server, own in shown.groupby("server", sort=False):
        for axis, name, by in zip(axes, FIGURES[:2], (1.0, 100.0), strict=True):
            axis.plot(own["load_qps"], by * own[name], marker="o", label=server,
                      linestyle="-" if str(server).startswith("ramsis") else "--")
    axes[0].set(xlabel="requests/s", ylabel="effective accuracy")
    axes[1].set(xlabel="requests/s", ylabel="violations (%)")
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4,
                 fontsize="small")
    drawn.savefig(file, metadata={"Date": None})
    pyplot.close(drawn)


def conditions(document: Mapping[str, Any]) -> str:
    """What the table was measured on, as a sentence."""
    return (f"{document['cores']} cores, SLO {document['slo_ms']:g} ms, runs of "
            f"{document['duration_s']:g} s, {document['repeats']} of each; load average "
            f"{document['load_average']:.1f} before they began.\n\n")


def main() -> None:
    """Run the league; write its rows and the page with the figure, and print the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true",
                        help="within six minutes, once the models are trained")
    parser.add_argument("--json", type=Path, required=True, help="file to write")
    parser.add_argument("--page", type=Path, help="page that gets conditions and figure between "
                        "its marks; the figure is beside it")
    parser.add_argument("--models", type=Path, default=Path("build/league"),
                        help="folder that keeps the models")
    parser.add_argument("--triton-python", type=Path, help="interpreter that has nvidia-pytriton")
    parser.add_argument("--ray-python", type=Path, help="interpreter that has ray[serve]")
    parser.add_argument("--mlserver-python", type=Path, help="interpreter that has mlserver")
    parser.add_argument("--slo-ms", type=float, default=60.0)
    parser.add_argument("--most-qps", type=float, default=1100.0,
                        help="what client and front end can take on a core")
    parser.add_argument("--workers", type=_numbers(int), help="as 1,2")
    parser.add_argument("--load-shares", type=_numbers(float), help="of the capacity, as 0.5,0.8")
    parser.add_argument("--duration-s", type=float, help="of a run")
    parser.add_argument("--repeats", type=int)
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    given = {"workers": options.workers, "shares": options.load_shares,
             "duration_s": options.duration_s, "repeats": options.repeats}
    plan = replace(plan, **{key: value for key, value in given.items() if value is not None})
    if options.page is not None:
        with_part(options.page.read_text(), "", "league")
    for old in options.models.glob("profile-*.json"):
        old.unlink()  # times of another day
    served = prepared(options.models, SIZES, plan.samples)
    document: dict[str, Any] = {
        "slo_ms": options.slo_ms, "cores": len(os.sched_getaffinity(0)), "repeats": plan.repeats,
        "duration_s": plan.duration_s, "load_average": os.getloadavg()[0], "rows": []}
    others = Others.found(
        options.triton_python, options.ray_python, options.mlserver_python)
    for workers in plan.workers:
        try:
            case = Case.calibrated(served, workers, options.slo_ms, plan, options.most_qps)
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"error: the calibration failed: {error.stderr[-500:]}") from None
        say(f"{workers} worker(s): capacity {case.capacity_qps:.0f} requests/s")
        for row in rows(case, others):
            document["rows"].append(row)
            write_atomic(options.json, json.dumps(document, indent=1) + "\n")
    if not document["rows"]:
        raise SystemExit("error: no server ran")
    print(table(document["rows"]))
    if options.page is not None:
        drawing = options.page.with_suffix(".svg")
        figure(document["rows"], drawing)
        write_part(options.page, "league", (
            f"{conditions(document)}"
            f"![Effective accuracy and violations over the load]({drawing.name})"))


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(kind(one) for one in text.split(","))


if __name__ == "__main__":
    main()
