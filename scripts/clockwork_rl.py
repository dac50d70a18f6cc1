"""Learning curves of the thesis on reinforcement learning in Clockwork: rows, figure and table.

python scripts/clockwork_rl.py --rows docs/results/clockwork-rl.csv --seeds 5 \
    --plot docs/evaluation/clockwork-rl.png --docs docs

Trains agents from nothing (extra ``rl``) and evaluates each on requests that its training does
not see:

``rewards``
    figure 5.9: the three rewards on 2400 requests/s × 48 models, 24 ms;
``longer``
    figure 5.2: the third of them, twice as long;
``relaxed``
    figures 5.10 and 5.11: training at 96 ms, then the Azure-like load, beside the shipped agent;
``tuned``
    figures 5.6 and 5.8: the shipped agent, and one of ``longer``, on other cells, before and after
    more training there;
``two-slos``
    figure 6.1: two users on one GPU, of whom one wants no answer before 100 ms.

Trainings whose rows and agents (in ``--agents``) are there are not repeated, so that an
interrupted study continues. ``--steps`` shortens every training.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
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
from study import markdown, parser_of, write_part

from ramsis.files import write_atomic
from ramsis.report.figure import COLOURS
from ramsis.scenario import Scenario, scenario_from_document
from ramsis.studies.clockwork_rl import REWARDS, needing_extra, reward_named
from ramsis.studies.clockwork_rl.agent import Agent, read_agent, shipped_agent, write_agent

RATE_QPS, INSTANCES, SLO_MS = 2400.0, 48, 24.0
PLAYED_S = 3.0  # of the runs that agents play after training
FRESH_SEED = 2_000_000  # of these runs, beyond the seeds of training and of the choice of agents
# With longer SLOs more queued work does no harm.
RELAXED = "work:work=0.5"
STEPS, TUNING_STEPS = 61_440, 20_480  # decisions of a training, and of more elsewhere
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
    steps: int  # decisions of training before, on the cell that it is for
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
        scenario: Scenario, steps: int = STEPS, start: Agent | None = None, **settings: Any,
    ) -> Agent:
        """Train an agent and write its rows, unless they are there; return the agent."""
        words = (study, *reward.split(":"), seed, *(f"{x:g}" for x in cell))
        file = self.agents / f"{'-'.join(map(str, words))}.json"
        if self.has(study, reward, seed, cell) and file.exists():
            return read_agent(file)
        chosen = self.training.TrainingSettings(
            steps=min(steps, self.most_steps or steps), reward=reward_named(reward), seed=seed,
            evaluate_every=settings.pop("evaluate_every", 10_000), **settings)
        agent: Agent
        agent, evaluations = self.training.train(scenario, chosen, start=start)
        rows = [row for past in evaluations for row in self.of_streams(
            study, reward, seed, cell, past.steps, False, past)]
        self.agents.mkdir(parents=True, exist_ok=True)
        write_agent(agent, file)
        self.rows = [row for row in self.rows if row[:6] != (study, reward, seed, *cell)]
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

    def play_once(self, study: str, reward: str, seed: int, cell: tuple[float, int, float],
                  scenario: Scenario, agent: Agent) -> None:
        """Play an agent on a run and write its rows, unless they are there."""
        if not self.has(study, reward, seed, cell):
            self.add(self.play(study, reward, seed, cell, scenario, agent))

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
    table = pd.read_csv(path, keep_default_na=False, true_values=["yes"], false_values=["no"])
    return [Row(*row) for row in table.itertuples(index=False)]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV."""
    table = pd.DataFrame(rows).replace({"kept": {True: "yes", False: "no"}})
    cells = {name: table[name].map("{:g}".format) for name in ("rate_qps", "slo_ms")}
    write_atomic(path, table.assign(**cells).to_csv(index=False))


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
    if "two-slos" in names:
        study.train("two-slos", RELAXED, 0, of_two, two_slos(), 40_000, runs=8,
                    evaluate_every=5_000)
    for seed, reward in product(range(seeds), REWARDS if "rewards" in names else ()):
        study.train("rewards", reward, seed, base, grid(*base, 10.0), evaluated_s=1.0)
    if "relaxed" in names:
        cell = (RATE_QPS, INSTANCES, 96.0)
        on_azure = (AZURE_QPS, AZURE_MODELS * AZURE_COPIES, AZURE_SLO_MS)
        relaxed = study.train("relaxed", RELAXED, 0, cell, grid(*cell, 10.0), 40_960,
                              evaluated_s=1.0)
        for name, agent in (("shipped", shipped_agent()), ("relaxed", relaxed)):
            study.play_once(f"{name}-azure", RELAXED, 0, on_azure, azure(4.0, 10.0), agent)
    longer = [study.train("longer", "work", seed, base, grid(*base, 10.0), 2 * STEPS,
                          evaluated_s=1.0)
              for seed in range(seeds) if "longer" in names or ("tuned" in names and not seed)]
    for cell in TUNED if "tuned" in names else ():
        for name, reward, agent in (("shipped", RELAXED, shipped_agent()),
                                    ("longer", "work", longer[0])):
            study.play_once(f"{name}-untuned", reward, 0, cell, grid(*cell, 10.0), agent)
            study.train(f"{name}-tuned", reward, 0, cell, grid(*cell, 10.0), TUNING_STEPS, agent,
                        learning_rate=3e-4, evaluated_s=2.0)


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
    """Return the table of figures 5.2 and 5.9: mean over the seeds, from the least to the most."""
    lines = []
    for study, reward in (*product(["rewards"], REWARDS), ("longer", "work")):
        of_seeds = [values for (name, _), values in figures_of(rows, study).items()
                    if name == reward]
        most = max(row.steps for row in rows if row.study == study)
        lines.append([f"`{reward}`", f"{most:,}", len(of_seeds), *(
            spread([getattr(values, name) for values in of_seeds])
            for name in ("mean", "best", "kept"))])
    return markdown(["reward", "decisions", "seeds", "mean of the curve", "its best",
                     "kept agent, other requests"], lines)


def table_of_cells(rows: Sequence[Row]) -> str:
    """Return the table of figures 5.6, 5.8, 5.10, 5.11 and 6.1."""
    kept: dict[tuple[str, ...], float] = {
        (row.study, f"{row.rate_qps:g} × {row.instances}, {row.slo_ms:g} ms", row.stream):
        row.in_time for row in rows if row.kept}
    lines = []
    names = {"shipped-untuned": "shipped", "longer-untuned": "from nothing, 24 ms",
             "shipped-azure": "shipped", "relaxed": "from nothing, 96 ms",
             "relaxed-azure": "from nothing, 96 ms", "two-slos": "of two kinds of SLO"}
    for (study, cell, stream), share in kept.items():
        if study in names:
            tuned = kept.get((study.replace("-untuned", "-tuned"), cell, stream))
            lines.append([names[study], f"the stream “{stream}”" if stream else cell,
                          f"{share:.4f}", f"{tuned:.4f}" if "untuned" in study and tuned else ""])
    return markdown(["agent", "played on", "in time", "with more training there"], lines)


_CURVES = (*REWARDS, "24 ms", "96 ms", "at once", "later")  # in the order of their colours


def plot(rows: Sequence[Row], file: Path) -> None:
    """Draw the learning curves: figures 5.9, 5.10 and 6.1."""
    from matplotlib.figure import Figure  # here, as only figures need it

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    rewards, longer, slos = figure.subplots(1, 3, sharey=True)
    curves = [row for row in rows if not row.kept]
    for reward in REWARDS:
        _draw_curve(rewards, reward, [row for row in curves if row.study == "rewards"
                                      and row.reward == reward])
    for study, label in (("longer", "24 ms"), ("relaxed", "96 ms")):
        _draw_curve(longer, label, [row for row in curves if row.study == study])
    for stream in dict.fromkeys(row.stream for row in curves if row.study == "two-slos"):
        _draw_curve(slos, stream, [row for row in curves if row.study == "two-slos"
                                   and row.stream == stream])
    rewards.set(title="three rewards, 2400/s × 48, 24 ms", ylabel="in time", ylim=(0, 1.03))
    longer.set(title="the third reward, two SLOs")
    slos.set(title="two kinds of SLO, one GPU")
    for axes in (rewards, longer, slos):
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
    parser = parser_of(__doc__)
    studies = ("two-slos", "rewards", "longer", "relaxed", "tuned")
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
        write_part(options.docs / "evaluation" / "clockwork.md", "rewards",
                   table_of_rewards(rows))
        print(table_of_cells(rows))  # of which the page has one sentence
    return 0


if __name__ == "__main__":
    sys.exit(main())
