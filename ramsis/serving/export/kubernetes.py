"""Generator of Kubernetes manifests for `ramsis serve`: pods, services, scaling and alerts.

A pod runs one server for all workers of the policies, from a volume that holds the policies and
the variants file. With a scaling policy a pod is one worker: each serves by the table of one
worker and states the wanted number, on which KEDA scales.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ramsis.errors import InvalidValueError
from ramsis.runtime.scaling_table import SCALING_NAME, ScalingTable
from ramsis.serving.export.ray_configuration import yaml_text

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035 label, as Services require
_PODS = "-pods"  # suffix of the headless Service's name
_LONGEST = 63 - len(_PODS)
_FOLDER, _PORT = "/models", 8000
_LONGEST_DRAIN_S = 86400.0
_GRACE_S = 5  # grace period in addition to the time in which the server drains


def manifests(
    policies: Path, variants: Path, *, name: str, image: str, claim: str, workers: int,
    drain_s: float = 10.0, scaling: ScalingTable | None = None, code: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the manifests: Deployment, two Services, PrometheusRule, and with scaling KEDA's.

    The base names of ``policies`` and ``variants`` are those on the volume of the
    PersistentVolumeClaim ``claim``; with ``scaling``, ``policies`` is the folder of `ramsis
    scale`. A pod requests a core for each of its ``workers`` and one for the front end. ``code``
    are functions of the variants file that may be imported, as MODULE:FUNCTION. A name that
    Kubernetes refuses, or a time to drain beyond a day, is an InvalidValueError.
    """
    if not _LABEL.fullmatch(name) or len(name) > _LONGEST:
        raise InvalidValueError(
            "not a name in Kubernetes", where="--name", value=name,
            allowed=f"up to {_LONGEST} of a to z, 0 to 9 and -, first a letter, last none of -")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", claim) or len(claim) > 253:
        raise InvalidValueError("not a name in Kubernetes", where="--claim", value=claim,
                                allowed="up to 253 of a to z, 0 to 9, - and ., no mark at an end")
    if not re.fullmatch(r"\S+", image):
        raise InvalidValueError("not an image", where="--image", value=image,
                                allowed="registry/name:tag")
    if not 0.0 <= drain_s <= _LONGEST_DRAIN_S:
        raise InvalidValueError("not a time to drain", where="--drain-s", value=drain_s,
                                allowed=f"0 to {_LONGEST_DRAIN_S:g}, a day")
    folder = f"{_FOLDER}/{policies.name}"
    served = [folder] if scaling is None else [
        f"{folder}/tables/workers-1", "--advise", f"{folder}/{SCALING_NAME}", "--peers",
        f"{name}{_PODS}"]
    arguments = ["serve", *served, "--variants", f"{_FOLDER}/{variants.name}",
                 "--host", "0.0.0.0",  # a pod is reached by its Service
                 "--port", str(_PORT), "--drain-s", f"{drain_s:g}",
                 *(word for name_of_function in code for word in ("--code", name_of_function))]
    labels = {"app": name}
    parts = [
        _deployment(name, labels, image, claim, arguments, workers, drain_s,
                    1 if scaling is None else scaling.least),
        _service(name, labels, {}),
        # Only ready pods, so that starting ones do not count as serving.
        _service(f"{name}{_PODS}", labels, {"clusterIP": "None"}),
        _alerts(name)]
    return parts if scaling is None else [*parts, _scaled_object(name, scaling)]


def manifests_text(parts: list[dict[str, Any]]) -> str:
    """Return manifests as one YAML stream."""
    return "---\n".join(yaml_text(part) for part in parts)


def _deployment(
    name: str, labels: Mapping[str, str], image: str, claim: str, arguments: list[str],
    workers: int, drain_s: float, replicas: int,
) -> dict[str, Any]:
    """Return the manifest of the Deployment, with probes and a volume for the models."""
    def probe(path: str, **terms: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "http"}, **terms}

    container = {
        "name": "ramsis", "image": image, "args": arguments,
        "ports": [{"name": "http", "containerPort": _PORT}],
        "resources": {"requests": {"cpu": str(workers + 1)}},
        # Models may take minutes to load; only then does the liveness probe begin.
        "startupProbe": probe("/v2/health/ready", periodSeconds=2, failureThreshold=150),
        "readinessProbe": probe("/v2/health/ready", periodSeconds=2, failureThreshold=1),
        "livenessProbe": probe("/v2/health/live", periodSeconds=10, failureThreshold=3),
        "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "models", "mountPath": _FOLDER, "readOnly": True},
                         {"name": "scratch", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": {
                    "prometheus.io/scrape": "true", "prometheus.io/port": str(_PORT)}},
                "spec": {
                    "terminationGracePeriodSeconds": int(drain_s) + _GRACE_S,
                    "containers": [container],
                    "volumes": [
                        {"name": "models", "persistentVolumeClaim": {
                            "claimName": claim, "readOnly": True}},
                        {"name": "scratch", "emptyDir": {}}]}}}}


def _service(name: str, labels: Mapping[str, str], terms: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels},
            "spec": {**terms, "selector": labels,
                     "ports": [{"name": "http", "port": _PORT, "targetPort": "http"}]}}


def _alerts(name: str) -> dict[str, Any]:
    of = f'{{app="{name}"}}'
    violations = (f'sum(rate(ramsis_queries_total{{app="{name}",outcome!="served"}}[5m])) / '
                  f"sum(rate(ramsis_queries_total{of}[5m]))")

    def alert(title: str, condition: str, lasts: str, summary: str) -> dict[str, Any]:
        return {"alert": title, "expr": condition, "for": lasts,
                "labels": {"severity": "warning"}, "annotations": {"summary": summary}}

    return {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule",
        "metadata": {"name": name}, "spec": {"groups": [{"name": name, "rules": [
            # Twice the promise plus a percent, so that random variation does not raise the alert.
            alert("RamsisViolations",
                  f"{violations} > 0.01 + 2 * max(ramsis_promised_violation_rate{of})", "5m",
                  "more requests are late, dropped or failed than promised: ramsis audit"),
            alert("RamsisWorkersRestart",
                  f"increase(ramsis_worker_restarts_total{of}[10m]) > 2", "0m",
                  "workers die: see the log's lines 'worker lost'"),
            alert("RamsisSlow", f"ramsis_slowness{of} > 1.15", "5m",
                  "batches take longer than profiled: ramsis serve --calibrate"),
            alert("RamsisPoliciesRefused", f"increase(ramsis_policy_errors_total{of}[10m]) > 0",
                  "0m", "new policies could not be read; the old ones still serve"),
        ]}]}}


def _scaled_object(name: str, scaling: ScalingTable) -> dict[str, Any]:
    # The table has its own stabilisation; a tolerance would suppress a change of one pod in ten.
    at_once = {"tolerance": "0", "stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "pollingInterval": max(1, round(scaling.interval_s)),
            "minReplicaCount": scaling.least, "maxReplicaCount": scaling.most,
            "advanced": {"horizontalPodAutoscalerConfig": {
                "behavior": {"scaleUp": at_once, "scaleDown": at_once}}},
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": {
                "serverAddress": "http://prometheus:9090",
                "query": f'max(ramsis_wanted_workers{{app="{name}"}})',
                "threshold": "1", "ignoreNullValues": "false"}}]}}
