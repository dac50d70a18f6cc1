"""Training of agents that schedule a scenario, by maskable PPO of sb3-contrib.

The policy network has two layers of 64 with tanh, and a value network of the same size. Training
starts from a given agent, or from one that rarely runs a batch, and then a large one (by the
biases of the last layer): an agent that runs everything at once on the first worker accumulates
work, and takes 120,000 decisions to get as far as others in 40,000. Several environments run side
by side in this process. Rewards are divided by the running standard deviation of their discounted
sum. After each ``evaluate_every`` steps the agent is evaluated on a held-out run, with and without
chance in its choices. The best agent so far is written, as agents get worse again after their
best; its file states whether it plays with chance.

*Imitation.* With ``imitate`` the network first learns, from this number of decisions, to imitate a
simple rule: whenever a worker has at most a millisecond of work, run the most urgent model in the
largest batch that its requests fill. PPO then continues with the reward. Without imitation it
takes some hundred thousand decisions to get as far.

A run of training is a function of scenario, settings and seed, on one machine with one version of
the libraries. It can be stopped and resumed from its checkpoint (a file of tensors and numbers,
read without running code); a resumed run draws other requests than an uninterrupted one.

Needs the extra ``rl``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ramsis.errors import InputFileError, whole
from ramsis.files import read_bytes, write_atomic
from ramsis.scenario import Scenario
from ramsis.sim import Engine, measure
from ramsis.studies.clockwork_rl.agent import Agent, Layer, Scaling, agent_from_document
from ramsis.studies.clockwork_rl.environment import BATCH_SIZES, EVERY_MS, SLOTS, ClusterEnv
from ramsis.studies.clockwork_rl.policy import Scaled, SlotPolicy
from ramsis.studies.clockwork_rl.rewards import REWARDS, Reward
from ramsis.studies.clockwork_rl.scheduler import AgentScheduler

# Initial biases of the last layer: rarely run, and in large batches; see the module.
_RUN_BIAS, _SIZE_BIAS = -4.0, 0.5
_EVALUATION_SEED = 1_000_000  # seed of the evaluation run, above the seeds of training
_BATCH, _EPOCHS = 512, 8  # decisions of a gradient step, and times that each is learned from
_TRACE = 0.9  # λ of the advantages
_STRAYS, _PASSES = 0.1, 15  # share of random actions in the imitation data, and epochs over it


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of the training of an agent."""

    steps: int = 800_000  # total decisions; the thesis' twenty episodes have about 790,000
    seed: int = 0
    reward: Reward = field(default_factory=lambda: REWARDS["work"])
    runs: int = 16  # environments side by side
    # length of the first episode of each environment, and of the longest. 500 steps would cover
    # less than a tenth of a second of six workers.
    first_steps: int = 3_000
    most_steps: int = 60_000
    evaluate_every: int = 20_000  # steps between two evaluations
    evaluated_s: float = 3.0  # duration of the evaluation run; longer ones have less variance
    learning_rate: float = 1e-3
    # discount factor per decision. Six workers decide six times a millisecond, so that with 0.99
    # an action's effect would drown in the rewards of a hundred others.
    discount: float = 0.9
    entropy: float = 0.003  # weight of the entropy bonus, which keeps the agent exploring
    imitate: int = 0  # number of decisions for the initial imitation; none by default

    def __post_init__(self) -> None:
        whole(1).check("not a count", steps=self.steps, runs=self.runs,
                       first_steps=self.first_steps, evaluate_every=self.evaluate_every)


@dataclass(frozen=True)
class AgentEvaluation:
    """Evaluation of an agent during training; the first one is before any training step."""

    steps: int  # training steps so far
    # share of requests in time in training since the last evaluation, with chance in its choices
    training: float | None
    # share of requests in time and mean batch size on the evaluation run, with or without chance,
    # whichever is better
    in_time: float
    mean_batch: float
    chance: bool  # whether the better one plays with chance
    by_stream: Mapping[str, float]  # share in time of each stream of that run


def train(
    scenario: Scenario, settings: TrainingSettings = TrainingSettings(), *,
    start: Agent | None = None, checkpoint: str | os.PathLike[str] | None = None,
    on_evaluation: Callable[[AgentEvaluation], object] = lambda _: None,
) -> tuple[Agent, list[AgentEvaluation]]:
    """Train an agent on a scenario, by reinforcement learning.

    Parameters
    ----------
    start : Agent, optional
        Agent to start from, with a network of the shape that this module trains.
    checkpoint : path, optional
        Training resumes from it if it exists; written at each evaluation.
    on_evaluation : callable
        Called with each :class:`AgentEvaluation`.

    Returns
    -------
    Agent
        The best agent.
    list of AgentEvaluation
    """
    torch.set_num_threads(1)
    model, rewards = trainer(scenario, settings)
    if start is not None:
        take_up(model, start)
    watch = _Watch(scenario, settings, model, rewards, on_evaluation)
    if checkpoint is not None:
        watch.path = Path(checkpoint)
        if watch.path.exists():
            watch.resume()
    if settings.imitate and not model.num_timesteps:
        imitate(model, scenario, settings)
    remaining = settings.steps - model.num_timesteps
    watch.evaluate_now()
    if remaining > 0:
        model.learn(remaining, callback=watch, reset_num_timesteps=False)
    watch.evaluate_now()
    assert watch.best is not None
    return watch.best, watch.evaluations


class Played(NamedTuple):
    """Figures of a run in which an agent was evaluated."""

    in_time: float
    mean_batch: float
    by_stream: Mapping[str, float]  # share in time of each stream


def evaluate(agent: Agent, scenario: Scenario, seed: int) -> Played:
    """Simulate an agent on a scenario with a seed, and return the figures of the run."""
    run = Engine.of_scenario(scenario, seed).serve(lambda engine: AgentScheduler(engine, agent))
    figures = measure(run)
    count = len(scenario.streams)
    requests = np.bincount(run.stream, minlength=count)
    in_time = np.bincount(run.stream[run.in_time], minlength=count)
    return Played(figures.in_time_share or 0.0, figures.batch_mean or 0.0, {
        stream.name: float(good / max(total, 1))
        for stream, good, total in zip(scenario.streams, in_time, requests, strict=True)})


def agent_of(
    model: MaskablePPO, training: Mapping[str, Any], chance: bool = False
) -> Agent:
    """Convert a model of sb3-contrib with :class:`SlotPolicy` to an agent."""
    linear = _linear(model)
    layers = tuple(Layer(layer.weight.detach().numpy().T.copy(),
                         layer.bias.detach().numpy().copy()) for layer in linear)
    return replace(_UNTAUGHT, layers=layers, chance=chance, training=training)


_UNTAUGHT = Agent(SLOTS, BATCH_SIZES, EVERY_MS, count=Scaling(0.0, 16.0, 4.0),
                  laxity_ms=Scaling(-10.0, 100.0, 20.0), work_ms=Scaling(0.0, 30.0, 5.0),
                  layers=())


def trainer(
    scenario: Scenario, settings: TrainingSettings
) -> tuple[MaskablePPO, VecNormalize]:
    """Return the untrained model of sb3-contrib, and its environments."""
    def environment() -> ClusterEnv:
        return ClusterEnv(scenario, settings.reward, first_steps=settings.first_steps,
                          most_steps=max(settings.most_steps, settings.first_steps))

    rewards = VecNormalize(DummyVecEnv([environment] * settings.runs), norm_obs=False,
                           gamma=settings.discount)
    rollout = max(1, min(128, settings.steps // settings.runs))
    model = MaskablePPO(
        SlotPolicy, rewards, learning_rate=settings.learning_rate, n_steps=rollout,
        batch_size=min(_BATCH, rollout * settings.runs), n_epochs=_EPOCHS,
        gamma=settings.discount, gae_lambda=_TRACE, ent_coef=settings.entropy, max_grad_norm=0.5,
        seed=settings.seed, device="cpu",
        policy_kwargs={"features_extractor_class": Scaled,
                       "features_extractor_kwargs": {"limits": _UNTAUGHT.limits},
                       "net_arch": {"pi": [64, 64], "vf": [64, 64]}})
    with torch.no_grad():
        bias: Any = model.policy.action_net.bias
        bias[1:2 * SLOTS:2] = _RUN_BIAS
        bias[2 * SLOTS:] = torch.arange(len(BATCH_SIZES)).repeat(SLOTS) * _SIZE_BIAS
    return model, rewards


def _linear(model: MaskablePPO) -> list[torch.nn.Linear]:
    """Return the layers of the policy's network."""
    policy: Any = model.policy
    layers = [layer for layer in policy.mlp_extractor.policy_net
              if isinstance(layer, torch.nn.Linear)]
    return [*layers, policy.action_net]


def take_up(model: MaskablePPO, agent: Agent) -> None:
    """Copy an agent's network to the policy; the value network stays untrained."""
    linear = _linear(model)
    shapes = [tuple(layer.weight.T.shape) for layer in linear]
    stated = [layer.weights.shape for layer in agent.layers]
    if shapes != stated:
        raise InputFileError("agent of another shape", where="start",
                             value=str(stated), allowed=str(shapes))
    with torch.no_grad():
        for layer, trained in zip(linear, agent.layers, strict=True):
            layer.weight.copy_(torch.as_tensor(trained.weights.T))
            layer.bias.copy_(torch.as_tensor(trained.bias))


def imitate(model: MaskablePPO, scenario: Scenario, settings: TrainingSettings) -> None:
    """Train the network by imitation of the rule in the module docstring."""
    env = ClusterEnv(scenario, settings.reward, first_steps=2000, most_steps=2000)
    env.reset(seed=settings.seed)
    rng = np.random.default_rng(settings.seed)
    seen, masks, actions = [], [], []
    observation, mask = env.reset()[0], env.action_masks()
    for _ in range(settings.imitate):
        action = np.zeros(2 * SLOTS, dtype=np.int64)
        if observation[-1] <= EVERY_MS and observation[0]:
            action[0] = 1
        fits = mask[2 * SLOTS:].reshape(SLOTS, -1)
        action[SLOTS:] = fits.shape[1] - 1 - fits[:, ::-1].argmax(axis=1)
        seen.append(observation)
        masks.append(mask)
        actions.append(action.copy())
        if rng.random() < _STRAYS:  # visit the states after mistakes, too
            action[:SLOTS] = (rng.random(SLOTS) < 1 / SLOTS) & (observation[:SLOTS] > 0)
        observation, _, over, cut, _ = env.step(action)
        if over or cut:
            observation, _ = env.reset()
        mask = env.action_masks()
    tensors = [torch.as_tensor(np.array(part)) for part in (seen, actions, masks)]
    optimiser = torch.optim.Adam(model.policy.parameters(), lr=2e-3)
    for _ in range(_PASSES):
        order = rng.permutation(settings.imitate)
        for batch in np.split(order, range(512, settings.imitate, 512)):
            rows, wanted, allowed = (tensor[batch] for tensor in tensors)
            _, log_prob, _ = model.policy.evaluate_actions(rows, wanted, allowed)
            optimiser.zero_grad()
            loss: Any = -log_prob.mean()
            loss.backward()
            optimiser.step()


class _Watch(BaseCallback):
    """Callback that evaluates the agent regularly, keeps the best, and writes checkpoints."""

    def __init__(
        self, scenario: Scenario, settings: TrainingSettings, model: MaskablePPO,
        rewards: VecNormalize, on_evaluation: Callable[[AgentEvaluation], object],
    ) -> None:
        super().__init__()
        self.scenario, self.settings, self.trained = scenario, settings, model
        self.rewards, self.on_evaluation = rewards, on_evaluation
        self.short = replace(scenario, duration_s=min(scenario.duration_s, settings.evaluated_s))
        self.path: Path | None = None
        self.best: Agent | None = None
        self.best_state: dict[str, Any] = {}
        self.evaluations: list[AgentEvaluation] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        steps = self.trained.num_timesteps
        last = self.evaluations[-1].steps if self.evaluations else 0
        if steps - last >= self.settings.evaluate_every:
            self.evaluate_now()

    def evaluate_now(self) -> None:
        """Evaluate the agent, unless it has not been trained since the last evaluation."""
        steps = self.trained.num_timesteps
        if self.evaluations and self.evaluations[-1].steps == steps:
            return
        late, good = np.sum(self.rewards.env_method("in_time_since"), axis=0).tolist()
        training = good / (late + good) if late + good else None
        likeliest, drawn = (
            evaluate(agent_of(self.trained, {}, chance), self.short, _EVALUATION_SEED)
            for chance in (False, True))
        chance = drawn.in_time > likeliest.in_time
        played = drawn if chance else likeliest
        if self.best is None or played.in_time >= max(past.in_time for past in self.evaluations):
            self.best = agent_of(self.trained, self.described(steps, played.in_time), chance)
        self.evaluations.append(AgentEvaluation(
            steps, training, played.in_time, played.mean_batch, chance, played.by_stream))
        self.on_evaluation(self.evaluations[-1])
        if self.path is not None:
            self.write_checkpoint()

    def described(self, steps: int, in_time: float) -> dict[str, Any]:
        """Return the notes on the training for the agent's file."""
        settings = asdict(self.settings)
        return {"scenario": self.scenario.name, "method": "maskable PPO", "after_steps": steps,
                "in_time_then": in_time, **settings}

    def write_checkpoint(self) -> None:
        assert self.path is not None
        assert self.best is not None
        returns = self.rewards.ret_rms
        state = {
            "format": "ramsis.training/1", "settings": asdict(self.settings),
            "scenario": self.scenario.to_document(), "steps": self.trained.num_timesteps,
            "policy": self.trained.policy.state_dict(),
            "optimiser": self.trained.policy.optimizer.state_dict(),
            "returns": [float(returns.mean), float(returns.var), float(returns.count)],
            "found": [asdict(past) for past in self.evaluations], "best": self.best.to_document(),
        }
        stream = io.BytesIO()
        torch.save(state, stream)
        write_atomic(self.path, stream.getvalue())

    def resume(self) -> None:
        """Continue an interrupted training from its checkpoint."""
        assert self.path is not None
        where = str(self.path)
        try:
            state = torch.load(io.BytesIO(read_bytes(self.path)), weights_only=True)
            is_known = state["format"] == "ramsis.training/1"
        except InputFileError:
            raise
        except Exception as error:  # damaged archives raise anything
            reason = " ".join(str(error).split())[:80]
            raise InputFileError(f"not a checkpoint ({reason})", where=where) from error
        if not is_known or state["scenario"] != self.scenario.to_document():
            raise InputFileError("checkpoint of another training", where=where,
                                 allowed="the same scenario, or another checkpoint")
        settings = asdict(self.settings)
        for key, value in state["settings"].items():
            if key != "steps" and settings[key] != value:
                raise InputFileError("checkpoint of other settings", where=f"{where}: {key}",
                                     value=settings[key], allowed=str(value))
        self.trained.policy.load_state_dict(state["policy"])
        self.trained.policy.optimizer.load_state_dict(state["optimiser"])
        self.trained.num_timesteps = state["steps"]
        returns = self.rewards.ret_rms
        mean, var, returns.count = state["returns"]
        returns.mean, returns.var = np.array(mean), np.array(var)
        self.evaluations = [AgentEvaluation(**past) for past in state["found"]]
        self.best = agent_from_document(state["best"], where)
        self.trained.set_random_seed(self.settings.seed + state["steps"])
