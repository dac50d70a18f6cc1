"""Learning curves of the thesis on reinforcement learning in Clockwork: rows, figure and table.

python scripts/clockwork_rl.py --rows docs/results/clockwork-rl.csv --seeds 5 \
    --plot docs/evaluation/clockwork-rl.png --docs docs

Trains agents from nothing (extra ``rl``) and evaluates each on requests that its training does
not see:

``rewards``
    figures 5.2 and 5.9: the three rewards on 2400 requests/s × 48 models, 24 ms;
``stages``
    the same, ten times as long and in two stages, of which the second looks further ahead;
``two-slos``
    figure 6.1: two users on one GPU, of whom one wants no answer before 100 ms;
``relaxed``
    figures 5.10 and 5.11: training at 96 ms, then the Azure-like load, beside the shipped agent;
``tuned``
    figures 5.6 and 5.8: the shipped agent on other cells, before and after more training there.

What the rows have is not trained again, so that an interrupted study continues: a second stage,
too, as long as the agent of the first is in ``--agents``. ``--steps`` shortens every training.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from itertools import product
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
from ramsis.report.figure import COLOURS
from ramsis.scenario import Scenario, scenario_from_document
from ramsis.studies.clockwork_rl import REWARDS, needing_extra
from ramsis.studies.clockwork_rl.agent import Agent, read_agent, shipped_agent, write_agent

RATE_QPS, INSTANCES, SLO_MS = 2400.0, 48, 24.0
PLAYED_S = 3.0  # of the runs that agents play after training
FRESH_SEED = 2_000_000  # of these runs, beyond the seeds of training and of the choice of agents
# Decisions of the two stages of a training. Only the discount differs: the second looks some eight
# milliseconds ahead, which drowns an agent that cannot do anything yet.
FIRST_STEPS, SECOND_STEPS, SECOND_DISCOUNT = 151_552, 253_952, 0.98
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
    steps: int  # decisions of training before, those of a first stage included
    kept: bool  # whether it is the agent that training keeps, on another run than the choice
    in_time: float
    mean_batch: float


class Study:
    """Trainings of a study, their rows, and the agents that they kept."""

    def __init__(self, rows: Path, agents: Path, steps: int | None) -> None:
        self.path, self.agents, self.most_steps = rows, agents, steps
        self.rows = read_rows(rows)
        self.training = needing_extra("training")

    def has(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float]
    ) -> bool:
        """Return whether the rows have a finished training, or an agent's run."""
        return any(row[:6] == (study, reward, seed, *cell) and row.kept for row in self.rows)

    def train(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
        scenario: Scenario, steps: int, start: Agent | None = None, before: int = 0,
        **settings: Any,
    ) -> Agent:
        """Train an agent and write its rows, unless they are there; return the agent.

        ``before`` counts the decisions of an earlier stage.
        """
        file = self.agents / f"{study}-{reward}-{seed}-{'-'.join(f'{x:g}' for x in cell)}.json"
        if self.has(study, reward, seed, cell) and file.exists():
            return read_agent(file)
        chosen = self.training.TrainingSettings(
            steps=min(steps, self.most_steps or steps), reward=REWARDS[reward], seed=seed,
            evaluate_every=settings.pop("evaluate_every", 10_000), **settings)
        agent: Agent
        agent, evaluations = self.training.train(scenario, chosen, start=start)
        rows = [row for past in evaluations for row in self.of_streams(
            study, reward, seed, cell, before + past.steps, False, past)]
        self.agents.mkdir(parents=True, exist_ok=True)
        write_agent(agent, file)
        self.rows = [row for row in self.rows if row[:6] != (study, reward, seed, *cell)]
        self.add([*rows, *self.play(study, reward, seed, cell, scenario, agent, before)])
        return agent

    def train_twice(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
    ) -> Agent:
        """Train an agent from nothing in two stages; return the one that the second keeps."""
        scenario = grid(*cell, 10.0)
        settings: dict[str, Any] = {"evaluate_every": 20_000, "evaluated_s": 1.0}
        first = self.train(study, reward, seed, cell, scenario, FIRST_STEPS, **settings)
        return self.train(f"{study}-second", reward, seed, cell, scenario, SECOND_STEPS, first,
                          FIRST_STEPS, discount=SECOND_DISCOUNT, **settings)

    def play(
        self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
        scenario: Scenario, agent: Agent, before: int = 0,
    ) -> list[Row]:
        """Return the rows of a kept agent on a run that neither training nor choice has seen."""
        played = self.training.evaluate(
            agent, shortened(scenario, PLAYED_S), FRESH_SEED + seed)
        return self.of_streams(
            study, reward, seed, cell, before + agent.training["after_steps"], True, played)

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
    of_two = (300.0, 2, 100.0)
    if "two-slos" in names and not study.has("two-slos", "work", 0, of_two):
        study.train("two-slos", "work", 0, of_two, two_slos(), 40_000, runs=8,
                    evaluate_every=5_000)
    for seed, reward in product(range(seeds), REWARDS):
        if "rewards" in names and not study.has("rewards", reward, seed, base):
            study.train("rewards", reward, seed, base, grid(*base, 10.0), 40_960,
                        evaluated_s=1.0)
    shipped = shipped_agent()
    if "relaxed" in names:
        cell = (RATE_QPS, INSTANCES, 96.0)
        on_azure = (AZURE_QPS, AZURE_MODELS * AZURE_COPIES, AZURE_SLO_MS)
        load = azure(4.0, 10.0)
        if not study.has("azure-after-24", "work", 0, on_azure):
            study.add(study.play("azure-after-24", "work", 0, on_azure, load, shipped))
        if not study.has("azure-after-96", "work", 0, on_azure):
            relaxed = study.train("relaxed", "work", 0, cell, grid(*cell, 10.0), 40_960,
                                  evaluated_s=1.0)
            study.add(study.play("azure-after-96", "work", 0, on_azure, load, relaxed))
    for cell in TUNED if "tuned" in names else ():
        if not study.has("untuned", "work", 0, cell):
            study.add(study.play("untuned", "work", 0, cell, grid(*cell, 10.0), shipped))
        if not study.has("tuned", "work", 0, cell):
            study.train("tuned", "work", 0, cell, grid(*cell, 10.0), 20_480, start=shipped,
                        learning_rate=3e-4, evaluated_s=2.0)
    for seed, reward in product(range(seeds), REWARDS):
        if "stages" in names and not study.has("stages-second", reward, seed, base):
            study.train_twice("stages", reward, seed, base)


class CurveFigures(NamedTuple):
    """Shares in time of a training."""

    mean: float  # over the evaluations, the one before any learning left out
    best: float  # of these
    last: float  # of these
    kept: float  # of the kept agent, on another run


def figures_of(rows: Sequence[Row], study: str) -> dict[tuple[str, int], CurveFigures]:
    """Return the figures of each reward and seed that a study has finished."""
    figures = {}
    for reward in REWARDS:
        for seed in sorted({row.seed for row in rows if row.study == study}):
            training = [row for row in rows if row[:3] == (study, reward, seed)]
            curve = [row.in_time for row in training if not row.kept][1:]
            kept = [row.in_time for row in training if row.kept]
            if curve and kept:
                figures[reward, seed] = CurveFigures(
                    sum(curve) / len(curve), max(curve), curve[-1], kept[0])
    return figures


def spread(values: Sequence[float]) -> str:
    """Return a mean, and the least and the largest where there are several values."""
    text = f"{sum(values) / len(values):.3f}"
    return f"{text} ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else text


def table_of_rewards(rows: Sequence[Row]) -> str:
    """Return the table of figure 5.9: mean over the seeds, and from the least to the most."""
    figures = figures_of(rows, "rewards")
    lines = []
    for reward in REWARDS:
        of_seeds = [values for (name, _), values in figures.items() if name == reward]
        lines.append([f"`{reward}`", len(of_seeds), *(
            spread([getattr(values, name) for values in of_seeds])
            for name in ("mean", "best", "kept"))])
    return markdown(["reward", "seeds", "mean of the curve", "its best",
                     "kept agent, other requests"], lines)


def table_of_stages(rows: Sequence[Row]) -> str:
    """Return the table of trainings in two stages, of the seeds that have finished each."""
    lines = []
    for name, study in (("first", "stages"), ("second", "stages-second")):
        figures = figures_of(rows, study)
        for reward in REWARDS:
            of_seeds = [values for (other, _), values in figures.items() if other == reward]
            lines.append([f"`{reward}`", name, len(of_seeds), *map(
                spread, zip(*of_seeds, strict=True))])
    return markdown(["reward", "stage", "seeds", "mean of the curve", "its best", "its end",
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


TABLES = {"rewards": table_of_rewards, "stages": table_of_stages, "trained": table_of_cells}


def write_tables(rows: Sequence[Row], docs: Path) -> None:
    """Put the tables between their marks on the page."""
    for name, table in TABLES.items():
        write_part(docs / "evaluation" / "clockwork.md", name, table(rows))


_CURVES = (*REWARDS, "at once", "later")  # in the order of their colours


def plot(rows: Sequence[Row], file: Path) -> None:
    """Draw the learning curves: figures 5.9, 6.1 and 5.10."""
    from matplotlib.figure import Figure  # here, as only figures need it

    figure = Figure(figsize=(9, 6.6), layout="constrained")
    (rewards, stages), (slos, relaxed) = figure.subplots(2, 2, sharey=True)
    whole = figures_of(rows, "stages-second")
    for reward in REWARDS:
        curves = [row for row in rows if row.reward == reward and not row.kept]
        _draw_curve(rewards, reward, [row for row in curves if row.study == "rewards"])
        # At its start the second stage has the agent that the first has kept, not its last one.
        _draw_curve(stages, reward, [row for row in curves if (reward, row.seed) in whole and (
            row.study == "stages"
            or (row.study == "stages-second" and row.steps > FIRST_STEPS))])
    stages.axvline(FIRST_STEPS / 1000, color="grey", lw=0.8, ls=":")
    for stream in dict.fromkeys(row.stream for row in rows if row.study == "two-slos"):
        _draw_curve(slos, stream, [row for row in rows if row.study == "two-slos"
                                   and row.stream == stream and not row.kept])
    _draw_curve(relaxed, "work", [row for row in rows if row.study == "relaxed"
                                  and not row.kept])
    count = len({seed for _, seed in whole})
    rewards.set(title="three rewards, 2400/s × 48, 24 ms", ylabel="in time", ylim=(0, 1.03))
    stages.set(title=f"the same in two stages ({count} seed{'s' if count > 1 else ''})")
    slos.set(title="two kinds of SLO, one GPU", ylabel="in time")
    relaxed.set(title="2400/s × 48, 96 ms")
    for axes in (rewards, stages, slos, relaxed):
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
    studies = ("two-slos", "rewards", "relaxed", "tuned", "stages")
    parser.add_argument("--study", action="append", choices=studies,
                        help="repeat; by default all")
    parser.add_argument("--rows", type=Path, required=True, metavar="FILE", help="CSV")
    parser.add_argument("--agents", type=Path, default=Path("agents_out"), metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=5, help="of the comparisons of rewards")
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
