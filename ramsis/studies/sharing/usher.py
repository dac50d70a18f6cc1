"""Usher: groups of models that complement each other, replicated and placed group by group.

A model m at batch b takes C_mb of a GPU's processors and M_mb of its memory, and a replica of it
serves b / latency. Batches longer than the SLO are left out.

*Groups.* Each model starts as a group. In a round, the distance of two groups is

    D(g, h) = | Σ_{m in g or h} C_m - M_m |

at one batch size, and the matching with the most pairs and among these the least sum of distances
merges pairs, where the merged group is not larger than ``group_size``. floor(log2 group_size)
rounds. Where all models are compute-heavy every such matching has the same sum; of these the one
with the closest pairs is taken.

*Replication.* c_m = ceil(rate / rate at the largest batch) GPUs could serve all of m. The numbers
of replicas tried are c_m, 2 c_m, ... 6 c_m, up to the number of GPUs; a model with none is not
served.

*Placing.* Groups one after the other, the largest first. For a group, every combination of a
number of replicas and a batch for each of its models is tried: models with C / M >= 1.2 are
compute-heavy, with M / C >= 1.2 memory-heavy, others neutral; in each class the heaviest by C + M
comes first; memory-heavy and compute-heavy ones alternate, neutral ones are last. A replica goes
to a GPU of the group, else to one of other groups, else to an empty one, where the sums of C and
of M stay within 1 and the model is not there yet, until its load is served. The combination
with the most requests served is kept, of these the one with the fewest GPUs, of these the first.

Usher takes the largest achieved occupancy for C, WAO-Usher its mean over time; both hold replicas
to a share of C. Where the publications are silent (order of groups, batch of the distance, several
replicas of a model on a GPU) the choices above give the groups and placements of the second one.

Source: Shubha et al., *USHER: Holistic Interference Avoidance for Resource Optimized ML
Inference*, OSDI 2024, as implemented in P. Elvinger, ETH Zurich, MSc thesis, 2024.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ramsis.errors import InvalidValueError, install
from ramsis.studies.sharing.gpu.profile import SharedBatch, between
from ramsis.studies.sharing.gpu.shared_gpu import Gpu, Replica, SharedModel
from ramsis.studies.sharing.plan import check_given

METRICS = ("occupancy", "weighted_occupancy", "utilisation")
_EPSILON = 1e-9  # tolerance of sums
_TIE = 1e-7  # weight of the tie-breaking concave term for close pairs, below relevant distances


@dataclass(frozen=True)
class Usher:
    """Settings of the sharing policy of Usher (OSDI 2024)."""

    metric: str = "occupancy"  # meaning of C, one of :data:`METRICS`
    grouping_batch: int = 8  # batch size at which distances are computed
    group_size: int = 4  # largest number of models of a group, >= 1
    class_ratio: float = 1.2  # of C and M at which a model is compute- or memory-heavy, >= 1
    multiples: int = 6  # largest multiple of c_m that is tried
    # False tries every number of replicas up to the number of GPUs, so that a model with a larger
    # c_m is served in part
    whole_multiples: bool = True
    mps: bool = True  # whether replicas are limited to a share of C
    one_of_a_model: bool = True  # whether a GPU holds at most one replica of a model

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InvalidValueError("unknown metric", value=self.metric,
                                    allowed=", ".join(METRICS))

    def __call__(self, models: Sequence[SharedModel], gpus: Sequence[Gpu]) -> list[Replica]:
        """Return replicas of the models on the GPUs."""
        check_given(models, gpus)
        cluster = _Cluster(self, gpus)
        groups = groups_of(models, gpus[0].gpu_type, self)
        for group in sorted(groups, key=len, reverse=True):
            cluster = _placed(self, cluster, group)
        return cluster.replicas

    def compute(self, row: SharedBatch) -> float:
        """Return C of a batch, its share of the GPU's processors by the policy's metric."""
        return float(getattr(row, self.metric))


def groups_of(
    models: Sequence[SharedModel], gpu_type: str, settings: Usher | None = None
) -> list[list[SharedModel]]:
    """Group compute-heavy models with memory-heavy ones, by minimum-weight matchings."""
    try:
        import networkx as nx  # here, as few need it
    except ImportError:
        raise InvalidValueError("Usher's groups need networkx, which is not installed",
                                where="usher", allowed=install("sharing")) from None
    chosen = settings or Usher()

    def excess(model: SharedModel) -> float:
        rows = model.batches.get(gpu_type, ())
        row = between(rows, min(chosen.grouping_batch, rows[-1].batch)) if rows else None
        return chosen.compute(row) - row.memory if row else 0.0

    groups = [[model] for model in models]
    for _ in range(int(math.log2(chosen.group_size))):
        graph = nx.Graph()
        graph.add_nodes_from(range(len(groups)))
        for i, j in itertools.combinations(range(len(groups)), 2):
            if len(groups[i]) + len(groups[j]) <= chosen.group_size:
                both = groups[i] + groups[j]
                distance = abs(math.fsum(excess(model) for model in both))
                # Among matchings with equal sums, a small concave term prefers close pairs.
                graph.add_edge(i, j, weight=distance + _TIE * math.sqrt(distance))
        pairs = [sorted(pair) for pair in nx.min_weight_matching(graph)]
        merged = {i for pair in pairs for i in pair}
        groups = ([groups[i] + groups[j] for i, j in sorted(pairs)]
                  + [group for i, group in enumerate(groups) if i not in merged])
    return groups


class _Choice(NamedTuple):
    """Choice for a model: its batch size and largest number of replicas."""

    model: SharedModel
    batch: int
    replicas: int


class _Cluster:
    """GPUs with their used resources and replicas so far."""

    def __init__(self, settings: Usher, gpus: Sequence[Gpu]) -> None:
        self.settings = settings
        self.gpus = gpus
        self.compute = [0.0] * len(gpus)
        self.memory = [0.0] * len(gpus)
        self.holds: list[frozenset[str]] = [frozenset()] * len(gpus)
        self.replicas: list[Replica] = []
        self.served = 0.0

    def copy(self) -> _Cluster:
        """Return a copy on which a combination can be tried."""
        other = _Cluster(self.settings, self.gpus)
        other.compute, other.memory = self.compute[:], self.memory[:]
        other.holds, other.replicas = self.holds[:], self.replicas[:]
        other.served = self.served
        return other

    @property
    def used(self) -> int:
        return sum(1 for held in self.holds if held)

    def place(self, choice: _Choice, group_gpus: list[int]) -> None:
        """Place replicas of a model until its load is served; add their GPUs to the group's."""
        left = choice.model.rate_rps
        for _ in range(choice.replicas):
            if left <= _EPSILON:
                break
            room = self._room(choice, group_gpus)
            if room is None:
                break
            i, row = room
            share = self.settings.compute(row)
            self.compute[i] += share
            self.memory[i] += row.memory
            self.holds[i] |= {choice.model.name}
            self.replicas.append(Replica(choice.model.name, self.gpus[i].name, choice.batch,
                                         share if self.settings.mps else None))
            if i not in group_gpus:
                group_gpus.append(i)
            taken = min(left, row.rate_rps)
            self.served += taken
            left -= taken

    def _room(self, choice: _Choice, group_gpus: list[int]) -> tuple[int, SharedBatch] | None:
        """Return a GPU with room for a replica: of the group, then used ones, then empty ones."""
        others = [i for i, held in enumerate(self.holds) if held and i not in group_gpus]
        empty = [i for i, held in enumerate(self.holds) if not held]
        for i in itertools.chain(group_gpus, others, empty):
            row = choice.model.batch(self.gpus[i].gpu_type, choice.batch)
            if (row is not None and row.latency_ms <= choice.model.slo_ms
                    and self.compute[i] + self.settings.compute(row) <= 1 + _EPSILON
                    and self.memory[i] + row.memory <= 1 + _EPSILON
                    and not (self.settings.one_of_a_model
                             and choice.model.name in self.holds[i])):
                return i, row
        return None


def _placed(settings: Usher, cluster: _Cluster, group: Sequence[SharedModel]) -> _Cluster:
    """Return the cluster with a group placed on it, by its best replicas and batch sizes."""
    best = cluster
    options = [choices for model in group if (choices := list(_choices(settings, model, cluster)))]
    for combination in itertools.product(*options):
        tried = cluster.copy()
        gpus_used: list[int] = []
        for choice in _order(settings, combination, cluster.gpus[0].gpu_type):
            tried.place(choice, gpus_used)
        if tried.served > best.served + _EPSILON or (
                tried.served > best.served - _EPSILON and tried.used < best.used):
            best = tried
    return best


def _choices(settings: Usher, model: SharedModel, cluster: _Cluster) -> Iterator[_Choice]:
    """Yield the batches and replica counts to try; counts above the need are tried once."""
    rates: dict[int, float] = {}
    kinds = {gpu.gpu_type for gpu in cluster.gpus}
    for kind in kinds:
        for row in model.in_time(kind):
            rates[row.batch] = max(rates.get(row.batch, 0.0), row.rate_rps)
    if not rates:
        return
    count = len(cluster.gpus)
    fewest = math.ceil(model.rate_rps / rates[max(rates)] - _EPSILON)
    numbers = ([i * fewest for i in range(1, settings.multiples + 1) if i * fewest <= count]
               if settings.whole_multiples else list(range(1, count + 1)))
    for batch, rate in sorted(rates.items()):
        # The rate of a batch depends on the GPU type.
        enough = count if len(kinds) > 1 else math.ceil(model.rate_rps / rate - _EPSILON)
        for number in dict.fromkeys(min(n, max(enough, 1)) for n in numbers):
            yield _Choice(model, batch, number)


def _order(settings: Usher, choices: Sequence[_Choice], gpu_type: str) -> Iterator[_Choice]:
    """Yield memory-heavy and compute-heavy models in turn, then neutral ones; heaviest first."""
    classes: tuple[list[tuple[float, int, _Choice]], ...] = ([], [], [])
    for i, choice in enumerate(choices):
        rows = choice.model.batches.get(gpu_type) or next(iter(choice.model.batches.values()))
        row = between(rows, min(choice.batch, rows[-1].batch))
        assert row is not None
        compute, memory = settings.compute(row), row.memory
        kind = 0 if memory >= settings.class_ratio * compute else (
            1 if compute >= settings.class_ratio * memory else 2)
        classes[kind].append((-(compute + memory), i, choice))
    memory_heavy, compute_heavy, neutral = (sorted(item) for item in classes)
    for pair in itertools.zip_longest(memory_heavy, compute_heavy):
        yield from (item[2] for item in pair if item is not None)
    yield from (item[2] for item in neutral)
