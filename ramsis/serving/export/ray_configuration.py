"""Generator of the configuration file of a Ray Serve application; does not require Ray."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ramsis.plugins import is_trusted
from ramsis.policy import Policy, PolicySet
from ramsis.runtime.scaling_table import ScalingTable
from ramsis.serving.variants import VariantsFile

_PLAIN_KEY = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}


def configuration(
    policies: PolicySet[Policy], where: Path, variants: VariantsFile, *,
    overhead_ms: float = 0.0, scaling: ScalingTable | None = None,
) -> dict[str, Any]:
    """Return the configuration that ``serve run`` reads.

    ``where`` is the path of the policies, or of the scaling policy, whose table is ``scaling``;
    without one the number of workers is fixed. The dispatcher subtracts ``overhead_ms`` from
    every slack.
    """
    replicas: dict[str, Any] = {"num_replicas": sum(policies.worker_types.values())}
    if scaling is not None:
        replicas = {"num_replicas": "auto", "autoscaling_config": {
            "min_replicas": scaling.least, "max_replicas": scaling.most,
            "initial_replicas": scaling.least,
            "upscale_delay_s": 0.0, "downscale_delay_s": 0.0,  # the table has its own delays
            "target_ongoing_requests": 1.0,  # else Ray warns; it counts for its own policy alone
            "metrics_interval_s": 1.0, "look_back_period_s": 5.0,
            "policy": {"policy_function": "ramsis.serving.ray_scaling:ScalingPolicy",
                       "policy_kwargs": {"scaling": str(where.resolve())}}}}
    return {
        "http_options": {"host": "127.0.0.1", "port": 8000},
        "applications": [{
            "name": variants.name, "route_prefix": "/",
            "import_path": "ramsis.serving.ray:application",
            "args": {"policies": str(where.resolve()), "variants": str(variants.path.resolve()),
                     "code": [variant.model for variant in variants.variants
                              if variant.backend == "callable" and is_trusted(variant.model)],
                     "dispatch": {"overhead_ms": overhead_ms}},
            "deployments": [
                {"name": "Worker", **replicas, "max_ongoing_requests": 1,
                 "ray_actor_options": {"num_cpus": 1.0}},
                # Ray would not start it if the workers reserve all cores of the machine.
                {"name": "Dispatcher", "num_replicas": 1, "max_ongoing_requests": 10_000,
                 "ray_actor_options": {"num_cpus": 0.0}}],
        }],
    }


def yaml_text(document: Mapping[str, Any]) -> str:
    """Format a document of JSON-like values as YAML.

    >>> print(yaml_text({"a": 1, "b": [{"c": "x", "d": [1, 2]}]}), end="")
    a: 1
    b:
      - c: "x"
        d: [1, 2]
    """
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(value: Mapping[str, Any]) -> Iterator[str]:
    for name, content in value.items():
        key = _key(name)
        if isinstance(content, Mapping) and content:
            yield f"{key}:"
            yield from (f"  {line}" for line in _lines(content))
        elif isinstance(content, list) and content and isinstance(content[0], Mapping):
            yield f"{key}:"
            for item in content:
                first, *others = _lines(item)
                yield f"  - {first}"
                yield from (f"    {line}" for line in others)
        else:
            yield f"{key}: {json.dumps(content)}"


def _key(name: str) -> str:
    """Return a YAML key, in quotes unless it is read as a text.

    >>> _key("nvidia.com/mig-1g.10gb"), _key("1e3"), _key("No")
    ('nvidia.com/mig-1g.10gb', '"1e3"', '"No"')
    """
    plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _YAML_WORDS
    return name if plain else json.dumps(name)
