"""``ramsis scenario``: commands for scenario files."""

from __future__ import annotations

from pathlib import Path

import click

from ramsis.cli.options.command import CommandGroup
from ramsis.cli.options.param_types import OUT_FILE, complete_files
from ramsis.cli.output.rows import progress
from ramsis.files import canonical_json, write_atomic


@click.group("scenario", cls=CommandGroup)
def scenario_group() -> None:
    """Scenarios of clusters on which models come and go."""


@scenario_group.command("placement", short_help="Write the placement problem of a scenario.")
@click.argument("scenario_file", metavar="SCENARIO", shell_complete=complete_files)
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="Placement problem to write.")
@click.option("--window-s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Length of a window, whose largest load is the demand.  [default: the mean of "
                   "the scenario]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the arrivals.")
def placement_command(
    scenario_file: str, out: Path, window_s: float | None, seed: int
) -> None:
    """Write the placement problem of a scenario, which `ramsis place` solves.

    Each model that gets requests is a variant, each family of models a family, with the load of
    its streams and the tightest of their SLOs.

    \b
    Examples:
      $ ramsis scenario placement scenario.json --window-s 1 --out problem.json
    """
    from ramsis.planning.planned import placement_problem  # here: it takes long to load
    from ramsis.scenario import read_scenario

    problem = placement_problem(read_scenario(scenario_file), window_s=window_s, seed=seed)
    write_atomic(out, canonical_json(problem.to_document()))
    workers = sum(worker_type.count for worker_type in problem.worker_types)
    click.echo(f"{out}: {len(problem.variants)} models for {len(problem.families)} families, "
               f"{sum(family.demand_qps for family in problem.families):.1f} QPS, "
               f"{workers} workers")


@scenario_group.command("train")
@click.argument("scenario_file", metavar="SCENARIO", shell_complete=complete_files)
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE", help="Agent to write.")
@click.option("--reward", default="work", show_default=True, metavar="NAME:factor=value,...",
              help="Reward of the agent: sparse, early or work, as in the thesis.")
@click.option("--steps", type=click.IntRange(min=1), default=800_000, show_default=True,
              help="Number of training decisions.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of the training.")
@click.option("--imitate", type=click.IntRange(min=0), default=0, show_default=True,
              help="Decisions of a simple rule to imitate first, which saves most of the "
                   "training.")
@click.option("--learning-rate", type=click.FloatRange(min=0, min_open=True), default=0.001,
              show_default=True, help="Learning rate of PPO.")
@click.option("--discount", type=click.FloatRange(min=0, max=1, max_open=True), default=0.9,
              show_default=True, help="Discount of later rewards, for each decision.")
@click.option("--entropy", type=click.FloatRange(min=0), default=0.003, show_default=True,
              help="Weight of the entropy of the choices, which keeps the agent exploring.")
@click.option("--runs", type=click.IntRange(min=1), default=16, show_default=True,
              help="Runs of the scenario side by side.")
@click.option("--first-steps", type=click.IntRange(min=1), default=3_000, show_default=True,
              help="Decisions in the first episode of each run; every other one has twice as "
                   "many, up to 60,000.")
@click.option("--checkpoint", type=OUT_FILE, metavar="FILE",
              help="File written at each evaluation, from which an interrupted training "
                   "continues.")
def train_command(
    scenario_file: str, out: Path, reward: str, steps: int, seed: int, imitate: int,
    learning_rate: float, discount: float, entropy: float, runs: int, first_steps: int,
    checkpoint: Path | None,
) -> None:
    """Train an agent that schedules a scenario (extra rl).

    Writes the agent that answered most requests in time in evaluation runs, on requests that
    training does not see. As the scheduler rl:agent=FILE of `ramsis simulate SCENARIO` it plays
    this scenario or another.

    \b
    Examples:
      $ ramsis scenario train scenario.json --steps 20000 --out agent.json
    """
    from ramsis.scenario import read_scenario
    from ramsis.studies.clockwork_rl import needing_extra, reward_named
    from ramsis.studies.clockwork_rl.agent import write_agent

    training = needing_extra("training")
    chosen = reward_named(reward)
    scenario = read_scenario(scenario_file)
    settings = training.TrainingSettings(
        steps=steps, seed=seed, reward=chosen, imitate=imitate, learning_rate=learning_rate,
        discount=discount, entropy=entropy, runs=runs, first_steps=first_steps)
    with progress("steps", steps) as advance:
        done = 0

        def on_steps(now: int) -> None:
            nonlocal done
            advance(now - done)
            done = now

        agent, evaluations = training.train(
            scenario, settings, checkpoint=checkpoint, on_steps=on_steps,
            on_evaluation=lambda evaluation: click.echo(
                f"{evaluation.steps} steps: in time {evaluation.in_time:.4f}"
                + ("" if evaluation.training is None else f" (training {evaluation.training:.4f})")
                + f", mean batch {evaluation.mean_batch:.2f}", err=True))
    write_agent(agent, out)
    best = max(evaluation.in_time for evaluation in evaluations)
    click.echo(f"{out}: {best:.4f} in time after {agent.training['after_steps']} of "
               f"{evaluations[-1].steps} steps")
