"""Model of interference: slow-down of batches that run on one GPU at once.

Batches on one GPU have profiled utilisations u_i of its multiprocessors, limited to shares s_i if
these are set: e_i = min(u_i, s_i). A batch with the latency l_i alone on the whole GPU runs at
speed 1 / slow_i, with

    slow_i = max(1, u_i / s_i)^k_i · (1 + Σ_{j≠i} a_ij) · max(1, Σ_j e_j),

the last factor if it ``saturates``. a_ij is latency beside j / latency alone - 1 of a measured
pair, or else ``per_utilisation`` x e_j. So Σ_i e_i / slow_i <= 1: no more work is done than there
are multiprocessors. Without coefficients every batch takes its isolated latency.

:data:`THESIS` is fitted to the cases that the thesis prints. ``per_utilisation`` = 0.375: resnet50
at batch 4 takes 8 ms instead of 6.8 beside alexnet at batch 4, which uses 47.07 %. It then also
says that densenet121 at batch 16 beside efficientnet_b7 at batch 8 serves 716 requests per second;
as printed, that is enough for 600 and not for 800. The exponent is 1: on a share r < u the same
work takes u / r times as long. iGniter's authors measured 0.80 to 0.99 on a V100 (four models,
batches of 16 and 32, from 10 to 50 and to 100 % of it).

The thesis has two set-ups, which contradict each other. Its iGniter ran with driver 470 and CUDA
11.8; in its figure 6.14 bert and gpt2 on shares meet 300 ms, as with exponents about 1. All
others ran with driver 550 and CUDA 12.4, and there shares cost far more: resnet50 at batch 4 takes
4 times as long on 17.55 % of the multiprocessors (it uses 36.26 %), bert at batch 4 takes 180 ms
instead of 34.1 on 31.83 % (96.82 %). :data:`THESIS_DRIVER_550` has the exponents of these two; the
other models get the one that fits both best.

Source: P. Elvinger, ETH Zurich, MSc thesis, 2024, sections 6.1.1 and 6.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ramsis.errors import NON_NEGATIVE, InputFileError

__all__ = ["INTERFERENCES", "NO_INTERFERENCE", "THESIS", "THESIS_DRIVER_550", "Interference",
           "Load"]

_Key = tuple[str, int]


class Load(NamedTuple):
    """Load of a running batch on a GPU, for the computation of interference."""

    model: str
    size: int
    utilisation: float
    mps_share: float | None = None

    @property
    def used(self) -> float:
        """Share of the multiprocessors in use at the GPU's full speed, e_i."""
        return min(self.utilisation, 1.0 if self.mps_share is None else self.mps_share)


@dataclass(frozen=True)
class Interference:
    """Model of how batches on a GPU slow each other down."""

    per_utilisation: float = 0.0  # a_ij per e_j, >= 0
    # whether batches slow down if they need more than all multiprocessors
    saturates: bool = True
    share_exponent: float = 1.0  # k of models without an entry in ``exponents``, >= 0
    exponents: Mapping[str, float] = field(default_factory=dict)  # model → k
    # (model, size) and (other model, its size) → latency of the first beside the second over its
    # latency alone, >= 1
    pairs: Mapping[tuple[_Key, _Key], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = {"per_utilisation": self.per_utilisation, "share_exponent": self.share_exponent,
                   **{f"exponents[{name}]": k for name, k in self.exponents.items()},
                   **{f"pairs[{pair}]": ratio - 1 for pair, ratio in self.pairs.items()}}
        for name, value in numbers.items():
            NON_NEGATIVE.required(f"interference: {name}", value, "negative coefficient",
                                  InputFileError)

    def on_share(self, model: str, utilisation: float, mps_share: float | None) -> float:
        """Return the latency factor of a batch limited to a share, alone on the GPU."""
        if mps_share is None or utilisation <= mps_share:
            return 1.0
        exponent = self.exponents.get(model, self.share_exponent)
        return float((utilisation / mps_share) ** exponent)

    def beside(self, loads: Sequence[Load]) -> list[float]:
        """Return the latency factors of batches that run together, without those of shares."""
        used = [load.used for load in loads]
        shared = max(1.0, math.fsum(used)) if self.saturates else 1.0
        factors = []
        for i, current in enumerate(loads):
            added = 0.0
            for j, other in enumerate(loads):
                if i != j:
                    ratio = self.pairs.get(((current.model, current.size),
                                            (other.model, other.size)))
                    added += self.per_utilisation * used[j] if ratio is None else ratio - 1.0
            factors.append((1.0 + added) * shared)
        return factors


# Latencies are isolated ones, whatever else runs; shares still slow a batch down.
NO_INTERFERENCE = Interference(saturates=False)
THESIS = Interference(per_utilisation=0.375)  # see the module, for the next one, too
THESIS_DRIVER_550 = Interference(per_utilisation=0.375, share_exponent=1.62,
                                 exponents={"resnet50": 1.91, "bert": 1.495})
# Set-ups by the names of the command line.
INTERFERENCES = {"thesis": THESIS, "thesis-driver-550": THESIS_DRIVER_550,
                 "none": NO_INTERFERENCE}
