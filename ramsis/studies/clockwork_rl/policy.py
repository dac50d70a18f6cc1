"""Policy network and action distribution for maskable PPO of sb3-contrib.

An action states for each slot whether to run its model, and the batch size, which is meaningless
for a slot that is not run. So the probability of an action is

    Π over slots  P(run or not) · (P(size) if run, else 1)

without masked choices. It is the multi-discrete distribution of sb3-contrib without the
meaningless sizes, which would add noise to every gradient. It is computed for all slots at once,
in a tenth of the time.

Needs the extra ``rl``.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium.spaces import Box
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from ramsis.studies.clockwork_rl.agent import Vector

_HUGE = -1e8  # logit of a forbidden choice; -inf would give NaN in the entropy


class SlotDistribution(MaskableDistribution):
    """Distribution over actions: for each slot whether to run its model, and the batch size."""

    def __init__(self, slots: int, sizes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.slots, self.sizes = slots, sizes

    def proba_distribution_net(self, latent_dim: int) -> torch.nn.Module:
        """Return the last layer of the network."""
        return torch.nn.Linear(latent_dim, self.slots * (2 + self.sizes))

    def proba_distribution(self, action_logits: torch.Tensor) -> SlotDistribution:
        """Set the logits, shape (n, slots · (2 + sizes))."""
        self.logits = action_logits
        return self

    def apply_masking(self, masks: Any) -> None:
        """Exclude the actions that the masks forbid; masks have the shape of the logits."""
        if masks is not None:
            allowed = torch.as_tensor(masks, dtype=torch.bool).reshape(self.logits.shape)
            self.logits = torch.where(allowed, self.logits, _HUGE)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities of actions, shape (n, 2 slots)."""
        run, size = self._logs()
        chosen = actions.long().reshape(-1, 2, self.slots, 1)
        log_run = run.gather(2, chosen[:, 0])[..., 0]
        log_size = size.gather(2, chosen[:, 1])[..., 0]
        total: torch.Tensor = (log_run + chosen[:, 0, :, 0] * log_size).sum(dim=1)
        return total

    def entropy(self) -> torch.Tensor:
        """Return the entropy, shape (n,)."""
        run, size = self._logs()
        of_run, of_size = -(run.exp() * run).sum(2), -(size.exp() * size).sum(2)
        total: torch.Tensor = (of_run + run[..., 1].exp() * of_size).sum(dim=1)
        return total

    def sample(self) -> torch.Tensor:
        """Draw a random action for each row of observations."""
        drawn = [(part - torch.empty_like(part).exponential_().log()).argmax(2)
                 for part in self._logs()]
        return torch.cat(drawn, dim=1)

    def mode(self) -> torch.Tensor:
        """Return the likeliest choice of each part."""
        return torch.cat([part.argmax(2) for part in self._logs()], dim=1)

    def actions_from_params(
        self, action_logits: torch.Tensor, deterministic: bool = False
    ) -> torch.Tensor:
        """Set the logits, and return actions drawn from them or the likeliest ones."""
        self.proba_distribution(action_logits)
        return self.get_actions(deterministic=deterministic)

    def log_prob_from_params(
        self, action_logits: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions for logits, and their log-probabilities."""
        actions = self.actions_from_params(action_logits)
        return actions, self.log_prob(actions)

    def _logs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities, shapes (n, slots, 2) and (n, slots, sizes)."""
        run = self.logits[:, :2 * self.slots].reshape(-1, self.slots, 2)
        size = self.logits[:, 2 * self.slots:].reshape(-1, self.slots, self.sizes)
        return run.log_softmax(dim=2), size.log_softmax(dim=2)


class Scaled(BaseFeaturesExtractor):
    """Feature extractor without parameters: clips observations to a range, divides by a unit."""

    low: torch.Tensor
    high: torch.Tensor
    unit: torch.Tensor

    def __init__(
        self, observation_space: Box, limits: tuple[Vector, Vector, Vector]
    ) -> None:
        super().__init__(observation_space, len(limits[0]))
        for name, value in zip(("low", "high", "unit"), limits, strict=True):
            self.register_buffer(name, torch.as_tensor(value))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Scale observations."""
        cut = torch.minimum(torch.maximum(observations, self.low), self.high)
        return cut / self.unit


class SlotPolicy(MaskableActorCriticPolicy):
    """Maskable PPO's policy of two networks, with :class:`SlotDistribution`."""

    def _build(self, lr_schedule: Any) -> None:
        choices: Any = self.action_space
        slots, sizes = len(choices.nvec) // 2, int(choices.nvec[-1])
        self.action_dist = SlotDistribution(slots, sizes)
        super()._build(lr_schedule)
