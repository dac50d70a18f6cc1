"""Reading, writing and validating policy files.

:func:`read` checks structure and ranges, :func:`validate` also what the numbers of a file have to
say of each other. ``policy-1.schema.json`` beside this module states the format for other
programs; a test holds the reader to it.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from math import inf
from typing import Any

from ramsis.errors import InputFileError, InvalidValueError, describe
from ramsis.files import canonical_json, read_json, write_atomic
from ramsis.policy.policy import Policy

_TOLERANCE = 1e-6


def policy_text(policy: Policy) -> str:
    """Return the text of a policy's file, the same bytes on every run."""
    try:
        text = canonical_json(policy.to_document())
        Policy.from_document(json.loads(text), "policy")
    except (TypeError, ValueError) as error:
        raise InvalidValueError(describe(f"not a policy that can be written ({error})")) from error
    return text


def write(policy: Policy, path: str | os.PathLike[str]) -> str:
    """Write a policy to a file, whole or not at all, and return the file's text.

    Raises
    ------
    InvalidValueError
        When the policy breaks the file's format; nothing is written.
    OutputError
        When the file cannot be written.
    """
    text = policy_text(policy)
    write_atomic(path, text)
    return text


def read(path: str | os.PathLike[str]) -> Policy:
    """Read the policy in a file.

    Raises
    ------
    InputFileError
        When the file cannot be read or breaks the format; the message gives the JSON path.
    """
    return Policy.from_document(read_json(path), str(path))


def validate(path: str | os.PathLike[str]) -> Policy:
    """Read a policy; check the consistency of the numbers too.

    Raises
    ------
    InputFileError
        Also when a latency falls as the batch grows, models do not stand fastest first, or
        expectations or certificate contradict themselves.
    """
    where = str(path)
    policy = read(path)
    _check_models(policy, where)
    _check_expectations(policy, where)
    _check_certificate(policy, where)
    return policy


def _refusal(where: str, path: str, what: str, **details: Any) -> InputFileError:
    return InputFileError(what, where=f"{where}: {path}", **details)


def _check_models(policy: Policy, where: str) -> None:
    for i, model in enumerate(policy.models):
        for b, (latency_ms, next_ms) in enumerate(pairwise(model.latency_ms), start=1):
            if next_ms < latency_ms and model.quantiles_ms is None:
                raise _refusal(where, f"models[{i}].latency_ms[{b}]",
                               "latency falls as the batch grows", value=next_ms,
                               allowed=f"a number >= {latency_ms}")
    for i, (faster, model) in enumerate(pairwise(policy.models), start=1):
        if model.latency_ms[0] < faster.latency_ms[0]:
            raise _refusal(where, f"models[{i}].latency_ms[0]", "models are not fastest first",
                           value=model.latency_ms[0],
                           allowed=f"a number >= {faster.latency_ms[0]}")


def _check_expectations(policy: Policy, where: str) -> None:
    expected = policy.expectations
    effective = (expected.accuracy or 0.0) * (1 - expected.violation_rate)
    if abs(expected.effective_accuracy - effective) > _TOLERANCE:
        raise _refusal(where, "expectations.effective_accuracy",
                       "not accuracy * (1 - violation_rate)", value=expected.effective_accuracy,
                       allowed=f"{effective}")
    replay = policy.replay
    if replay is not None and replay.violation_rate != expected.violation_rate:
        raise _refusal(where, "replay.violation_rate", "not the expected violation rate",
                       value=replay.violation_rate,
                       allowed=f"{expected.violation_rate} (expectations.violation_rate)")
    served = sum(expected.model_share.values())
    if abs(served - 1) > _TOLERANCE:
        raise _refusal(where, "expectations.model_share", "shares do not sum to 1", value=served)


def _check_certificate(policy: Policy, where: str) -> None:
    record = policy.certificate
    low = -inf if record.gain_lower is None else record.gain_lower
    high = inf if record.gain_upper is None else record.gain_upper
    if low > high + _TOLERANCE:
        raise _refusal(where, "certificate.gain_lower", "lower bound above the upper one",
                       value=low, allowed=f"a number <= {high} (gain_upper)")
    if record.gain > high + _TOLERANCE:
        raise _refusal(where, "certificate.gain", "gain above its upper bound",
                       value=record.gain, allowed=f"a number <= {high} (gain_upper)")
