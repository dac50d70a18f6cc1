"""Export of GPU layouts to nvidia-mig-parted and Kubernetes.

GPUs belong to nodes. A GPU named ``NODE:INDEX`` is on that node; the other GPUs of a type are
grouped by ``gpus_per_node`` into nodes ``TYPE-node-1`` onwards. The index is that of
``nvidia-smi``.

nvidia-mig-parted takes counts of instances and finds positions for them itself. There are such
positions, since the layouts of a checked placement have them. It does not change unlisted GPUs,
nor a GPU that already has the instances.

Source: the tool's README (https://github.com/NVIDIA/mig-parted), and the resource names of
NVIDIA's device plugin for Kubernetes under its strategy ``mixed``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from placement_milp.io import PlacedGroups
from placement_milp.result import CutGpu
from ramsis.errors import InputFileError

_PROFILE = re.compile(r"\d+g\.\d+gb")
_NODE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")


class MigNode(NamedTuple):
    """Node of a cluster, with its partitioned GPUs by index."""

    name: str
    gpus: dict[int, CutGpu]

    def resources(self) -> dict[str, int]:
        """Return the number of each Kubernetes resource of the node."""
        counts = Counter(_resource(profile) for gpu in self.gpus.values()
                         for profile in _profiles(gpu))
        return dict(sorted(counts.items()))


def mig_nodes(placed: PlacedGroups, gpus_per_node: int = 8) -> tuple[MigNode, ...]:
    """Return the nodes with partitioned GPUs; ``gpus_per_node`` is for GPUs named without node."""
    place: dict[str, tuple[str, int]] = {}
    for item in placed.problem.worker_types:
        for i, name in enumerate(item.worker_names() if item.partitions else ()):
            node_name, _, number = name.rpartition(":")
            place[name] = ((node_name, int(number)) if node_name and number.isdecimal() else (
                f"{item.name}-node-{i // gpus_per_node + 1}", i % gpus_per_node))
    nodes: dict[str, dict[int, CutGpu]] = {}
    for gpu in placed.gpus:
        node, index = place[gpu.gpu]
        if not _NODE.fullmatch(node):
            raise InputFileError("not the name of a node", where=gpu.gpu, value=node,
                                 allowed="letters, digits, - and .")
        for profile in _profiles(gpu):
            if not _PROFILE.fullmatch(profile):
                raise InputFileError("not an instance that NVIDIA's tools know", where=gpu.gpu,
                                     value=profile, allowed="names such as 2g.20gb")
        # GPUs named with and without a node can have the same index.
        gpus_of = nodes.setdefault(node, {})
        if index in gpus_of:
            raise InputFileError("two GPUs have one index", where=f"node {node}",
                                 value=f"{gpus_of[index].gpu}, {gpu.gpu}",
                                 allowed="names NODE:INDEX that differ in the index")
        gpus_of[index] = gpu
    if not nodes:
        raise InputFileError("no GPU of the placement is cut into instances",
                             where=placed.problem.name,
                             allowed="a problem whose worker types have partitions")
    return tuple(MigNode(name, dict(sorted(gpus.items()))) for name, gpus in nodes.items())


def _profiles(gpu: CutGpu) -> list[str]:
    return [instance.rpartition("@")[0] for instance in gpu.instances]


def _resource(profile: str) -> str:
    """Return the name of an instance's Kubernetes resource.

    >>> _resource("2g.10gb")
    'nvidia.com/mig-2g.10gb'
    """
    return f"nvidia.com/mig-{profile}"


def mig_parted(nodes: Sequence[MigNode]) -> dict[str, Any]:
    """Return the document of nvidia-mig-parted: a configuration for each node, by its name."""
    return {"version": "v1", "mig-configs": {node.name: _devices(node) for node in nodes}}


def _devices(node: MigNode) -> list[dict[str, Any]]:
    """Return configurations of a node; GPUs with equal counts of instances share one."""
    by_counts: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, gpu in node.gpus.items():
        by_counts.setdefault(tuple(sorted(Counter(_profiles(gpu)).items())), []).append(index)
    return [{"devices": indices, "mig-enabled": True, "mig-devices": dict(counts)}
            for counts, indices in by_counts.items()]


def kubernetes_resources(placed: PlacedGroups, nodes: Sequence[MigNode]) -> dict[str, Any]:
    """Return the resources of each node, and the resource request of each group's containers."""
    cut = {gpu.worker_type for gpu in placed.gpus}
    replicas = []
    for group in placed.groups:
        kind, _, profile = group.worker_type.rpartition("/")
        if kind in cut:
            replicas.append({
                "models": [name for use in group.uses for name in use.variants],
                "replicas": len(group.workers),
                "processes": max(use.processes for use in group.uses),
                "resources": {"limits": {_resource(profile): 1}}})
    return {"nodes": {node.name: node.resources() for node in nodes}, "replicas": replicas}
