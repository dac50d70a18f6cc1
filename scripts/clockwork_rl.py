"""Learning curves of the thesis on reinforcement learning in Clockwork: rows, figure and table.

python scripts/clockwork_rl.py --rows docs/results/clockwork-rl.csv --seeds 5 \
    --plot docs/evaluation/clockwork-rl.png --docs docs

Trains agents from nothing (extra ``rl``) and evaluates each on requests that its training does
not see:

``rewards``
    figures 5.2 and 5.9: the three rewards on 2400 requests/s × 48 models, 24 ms;
``two-slos``
    figure 6.1: two users on one GPU, of whom one wants no answer before 100 ms;
``relaxed``
    figures 5.10 and 5.11: training at 96 ms, then the Azure-like load, beside the shipped agent;
``tuned``
    figures 5.6 and 5.8: the shipped agent on other cells, before and after more training there.

What the rows have is not trained again, so that an interrupted study continues. ``--steps``
shortens every training.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from acceptance.pages import markdown, write_part
from clockwork import (
    AZURE_COPIES,
    AZURE_MODELS,
    AZURE_QPS,
    AZURE_SLO_MS,
    BATCH_1_MS,
    azure,
    grid,
    latencies,
)

from ramsis.files import write_atomic
from ramsis.report.looks import COLOURS
from ramsis.scenario import Scenario, scenario_from_document
from ramsis.studies.clockwork_rl import REWARDS, needing_extra
from ramsis.studies.clockwork_rl.agent import Agent, read_agent, shipped_agent, write_agent

RATE_QPS, INSTANCES, SLO_MS = 2400.0, 48, 24.0
PLAYED_S = 3.0  # of the runs that agents play after training
FRESH_SEED = 2_000_000  # of these runs, beyond the seeds of training and of the choice of agents
TUNED = ((2400.0, 12, 24.0), (2400.0, 12, 12.0), (2400.0, 48, 12.0), (2400.0, 12, 6.0))


class Row(NamedTuple):
    """Share in time of an agent on a run."""

    study: str
    reward: str
    seed: int
    rate_qps: float
    instances: int
    slo_ms: float
    stream: str  # of whose requests the share is; "" for all
    steps: int  # decisions that the agent has learned from
    kept: bool  # whether it is the agent that training keeps, on another run than the choice
    in_time: float
    mean_batch: float


class Study:
    """Trainings of a study, their rows, and the agents that they kept."""

    def __init__(self, rows: Path, agents: Path, steps: int | None) -> None:
        self.path, self.agents, self.most_steps = rows, agents, steps
        self.rows = read_rows(rows)
        self.training = needing_extra("training")

    def train(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
        scenario: Scenario, steps: int, start: Agent | None = None, **settings: Any,
    ) -> Agent:
        """Train an agent and write its rows, unless they are there; return the agent."""
        file = self.agents / f"{study}-{reward}-{seed}-{'-'.join(f'{x:g}' for x in cell)}.json"
        done = any(row[:6] == (study, reward, seed, *cell) and row.kept for row in self.rows)
        if done and file.exists():
            return read_agent(file)
        chosen = self.training.TrainingSettings(
            steps=min(steps, self.most_steps or steps), reward=REWARDS[reward], seed=seed,
            evaluate_every=settings.pop("evaluate_every", 10_000), **settings)
        agent: Agent
        agent, evaluations = self.training.train(scenario, chosen, start=start)
        rows = [row for past in evaluations for row in self.of_streams(
            study, reward, seed, cell, past.steps, False, past)]
        self.agents.mkdir(parents=True, exist_ok=True)
        write_agent(agent, file)
        self.add([*rows, *self.play(study, reward, seed, cell, scenario, agent)])
        return agent

    def play(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
        scenario: Scenario, agent: Agent,
    ) -> list[Row]:
        """Return the rows of a kept agent on a run that neither training nor choice has seen."""
        played = self.training.evaluate(
            agent, shortened(scenario, PLAYED_S), FRESH_SEED + seed)
        return self.of_streams(
            study, reward, seed, cell, agent.training["after_steps"], True, played)

    def of_streams(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float], steps: int,
        kept: bool, played: Any,
    ) -> list[Row]:
        """Return a row for each stream of a run, or one for all where there is one stream."""
        shares = played.by_stream if study == "two-slos" else {"": played.in_time}
        return [Row(study, reward, seed, *cell, stream, steps, kept, round(share, 4),
                    round(played.mean_batch, 3)) for stream, share in shares.items()]

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows and write the file."""
        self.rows += rows
        write_rows(self.path, self.rows)
        last = rows[-1]
        print(*last, flush=True)


def shortened(scenario: Scenario, duration_s: float) -> Scenario:
    """Return a scenario of shorter duration."""
    return scenario_from_document({**scenario.to_document(), "duration_s": duration_s})


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file; none where there is no file."""
    if not path.exists():
        return []
    return [Row(row["study"], row["reward"], int(row["seed"]), float(row["rate_qps"]),
                int(row["instances"]), float(row["slo_ms"]), row["stream"], int(row["steps"]),
                row["kept"] == "yes", float(row["in_time"]), float(row["mean_batch"]))
            for row in csv.DictReader(io.StringIO(path.read_text("utf-8")))]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        writer.writerow([f"{value:g}" if name in ("rate_qps", "slo_ms") else
                         ("yes" if value else "no") if name == "kept" else value
                         for name, value in zip(Row._fields, row, strict=True)])
    write_atomic(path, text.getvalue())


def two_slos() -> Scenario:
    """The scenario of figure 6.1."""
    load = {"load_qps": 150}
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "at once, and not before 100 ms",
        "duration_s": 20, "worker_types": [{"name": "gpu", "count": 1}],
        "models": [{"name": "resnet50", "copies": 2, "latency": latencies(BATCH_1_MS)}],
        "streams": [{"name": "at once", "model": "resnet50", "shares": [1, 0], "slo_ms": 100,
                     "workload": load},
                    {"name": "later", "model": "resnet50", "shares": [0, 1], "earliest_ms": 100,
                     "slo_ms": 1000, "workload": load}],
        "start": [{"worker": "gpu", "models": ["resnet50"]}],
    })


def run(study: Study, names: Sequence[str], seeds: int) -> None:
    """Run the trainings that the rows lack, the shortest first."""
    base = (RATE_QPS, INSTANCES, SLO_MS)
    hard = grid(*base, 10.0)
    if "two-slos" in names:
        study.train("two-slos", "work", 0, (300.0, 2, 100.0), two_slos(), 40_000, runs=8,
                    evaluate_every=5_000)
    if "rewards" in names:
        for seed in range(seeds):
            for reward in REWARDS:
                study.train("rewards", reward, seed, base, hard, 40_960, evaluated_s=1.0)
    shipped = shipped_agent()
    if "relaxed" in names:
        cell = (RATE_QPS, INSTANCES, 96.0)
        relaxed = study.train("relaxed", "work", 0, cell, grid(*cell, 10.0), 40_960,
                              evaluated_s=1.0)
        on_azure = (AZURE_QPS, AZURE_MODELS * AZURE_COPIES, AZURE_SLO_MS)
        for name, agent in (("azure-after-24", shipped), ("azure-after-96", relaxed)):
            if not any(row.study == name for row in study.rows):
                study.add(study.play(name, "work", 0, on_azure, azure(4.0, 10.0), agent))
    if "tuned" in names:
        for cell in TUNED:
            if not any(row[:6] == ("untuned", "work", 0, *cell) for row in study.rows):
                study.add(study.play("untuned", "work", 0, cell, grid(*cell, 10.0), shipped))
            study.train("tuned", "work", 0, cell, grid(*cell, 10.0), 20_480, start=shipped,
                        learning_rate=3e-4, evaluated_s=2.0)


class CurveFigures(NamedTuple):
    """Shares in time of a training."""

    mean: float  # over the evaluations, the one before the first decision left out
    best: float  # of these
    kept: float  # of the kept agent, on another run


def figures_of_rewards(rows: Sequence[Row]) -> dict[tuple[str, int], CurveFigures]:
    """Return the figures of each reward and seed."""
    figures = {}
    for reward in REWARDS:
        for seed in sorted({row.seed for row in rows if row.study == "rewards"}):
            training = [row for row in rows if row[:3] == ("rewards", reward, seed)]
            curve = [row.in_time for row in training if not row.kept and row.steps]
            kept = [row.in_time for row in training if row.kept]
            if curve and kept:
                figures[reward, seed] = CurveFigures(
                    sum(curve) / len(curve), max(curve), kept[0])
    return figures


def table_of_rewards(rows: Sequence[Row]) -> str:
    """Return the table of figure 5.9: mean over the seeds, and from the least to the most."""
    figures = figures_of_rewards(rows)
    lines = []
    for reward in REWARDS:
        of_seeds = [values for (name, _), values in figures.items() if name == reward]
        cells = [f"{sum(values) / len(values):.3f} ({min(values):.3f} to {max(values):.3f})"
                 for values in zip(*of_seeds, strict=True)]
        lines.append([f"`{reward}`", len(of_seeds), *cells])
    return markdown(["reward", "seeds", "mean of the curve", "its best",
                     "kept agent, other requests"], lines)


def table_of_cells(rows: Sequence[Row]) -> str:
    """Return the table of figures 5.3, 5.6, 5.8, 5.10, 5.11 and 6.1."""
    kept = {(row.study, row.rate_qps, row.instances, row.slo_ms, row.stream): row.in_time
            for row in rows if row.kept}
    lines = []
    names = {"untuned": "shipped", "azure-after-24": "shipped", "relaxed": "of 96 ms",
             "azure-after-96": "of 96 ms", "two-slos": "of two kinds of SLO"}
    for (study, rate_qps, instances, slo_ms, stream), share in kept.items():
        if study not in names:
            continue
        tuned = kept.get(("tuned", rate_qps, instances, slo_ms, stream))
        place = f"the stream “{stream}”" if stream else (
            f"{rate_qps:g} × {instances}, {slo_ms:g} ms")
        lines.append([names[study], place, f"{share:.4f}",
                      "" if tuned is None else f"{tuned:.4f}"])
    return markdown(["agent", "played on", "in time", "with more training there"], lines)


TABLES = {"rewards": table_of_rewards, "trained": table_of_cells}


def write_tables(rows: Sequence[Row], docs: Path) -> None:
    """Put the tables between their marks on the page."""
    for name, table in TABLES.items():
        write_part(docs / "evaluation" / "clockwork.md", name, table(rows))


_CURVES = (*REWARDS, "at once", "later")  # in the order of their colours


def plot(rows: Sequence[Row], file: Path) -> None:
    """Draw the learning curves: figures 5.9, 6.1 and 5.10."""
    from matplotlib.figure import Figure  # here, as only figures need it

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    rewards, slos, relaxed = figure.subplots(1, 3, sharey=True)
    for reward in REWARDS:
        _draw_curve(rewards, reward, [row for row in rows if row.study == "rewards"
                                      and row.reward == reward and not row.kept])
    for stream in dict.fromkeys(row.stream for row in rows if row.study == "two-slos"):
        _draw_curve(slos, stream, [row for row in rows if row.study == "two-slos"
                                   and row.stream == stream and not row.kept])
    _draw_curve(relaxed, "work", [row for row in rows if row.study == "relaxed"
                                  and not row.kept])
    rewards.set(title="three rewards, 2400/s × 48, 24 ms", ylabel="in time", ylim=(0, 1.03))
    slos.set(title="two kinds of SLO, one GPU")
    relaxed.set(title="2400/s × 48, 96 ms")
    for axes in (rewards, slos, relaxed):
        axes.set_xlabel("thousand decisions")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file, dpi=110)


def _draw_curve(axes: Any, label: str, rows: Sequence[Row]) -> None:
    """Draw the mean over the seeds, and the range of the seeds."""
    by_steps: dict[int, list[float]] = {}
    for row in rows:
        by_steps.setdefault(row.steps, []).append(row.in_time)
    steps = [count / 1000 for count in by_steps]
    shares = list(by_steps.values())
    colour = COLOURS[_CURVES.index(label)]
    axes.plot(steps, [sum(values) / len(values) for values in shares], label=label, color=colour)
    axes.fill_between(steps, list(map(min, shares)), list(map(max, shares)), alpha=0.2,
                      color=colour)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is asked for, and write rows and figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    studies = ("two-slos", "rewards", "relaxed", "tuned")
    parser.add_argument("--study", action="append", choices=studies,
                        help="repeat; by default all")
    parser.add_argument("--rows", type=Path, required=True, metavar="FILE", help="CSV")
    parser.add_argument("--agents", type=Path, default=Path("agents_out"), metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=5, help="of the comparison of rewards")
    parser.add_argument("--steps", type=int, help="most decisions of each training")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="PNG of the rows")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="whose tables are written")
    parser.add_argument("--kept", action="store_true", help="train nothing; only from the rows")
    options = parser.parse_args(arguments)
    if not options.kept:
        run(Study(options.rows, options.agents, options.steps), options.study or studies,
            options.seeds)
    rows = read_rows(options.rows)
    if options.plot is not None:
        plot(rows, options.plot)
    if options.docs is not None:
        write_tables(rows, options.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
