"""Public records say in one line what they are, however much they hold."""

import dataclasses
import enum
import importlib
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import placement_milp
import ramsis
from ramsis.reprs import brief
from ramsis.testing import sample_scenario
from tests.policy.samples import small_policy
from tests.test_public_names import MODULES


def records() -> Iterator[type[Any]]:
    """Public data classes and named tuples."""
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and (
                    dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
                yield value


def is_small(hint: Any) -> bool:
    """Whether every value of a type is written in some characters."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return all(map(is_small, typing.get_args(hint)))
    return typing.get_origin(hint) is typing.Literal or hint in (
        str, int, float, bool, type(None)) or (
        inspect.isclass(hint) and issubclass(hint, enum.Enum))


def may_be_long(record: type[Any]) -> bool:
    try:
        hints = typing.get_type_hints(record)
    except NameError:  # a name that is imported for type checkers only
        return True
    names = (record._fields if hasattr(record, "_fields")
             else [field.name for field in dataclasses.fields(record) if field.repr])
    return any(not is_small(hints[name]) for name in names)


SHORT = {"DispatchRule", "Limit", "Request"}
"""Named tuples of names, numbers and functions."""


@pytest.mark.parametrize("record", sorted(
    set(filter(may_be_long, records())), key=str))
def test_a_record_that_may_be_long_has_a_short_representation(record):
    written: Any = record.__repr__
    assert (written is brief or "brief" in written.__code__.co_names or record.__name__ in SHORT)


def test_representations_say_in_one_line_what_an_object_is():
    profile = ramsis.load_profile("digits-cpu")
    cluster = ramsis.Cluster.of(profile, workers=4, slo_ms=25.0)
    scenario = sample_scenario()
    result = ramsis.simulate(cluster, ramsis.sim.JellyfishPlus(), ramsis.sim.ConstantLoad(
        load_qps=100.0, duration_ms=500.0), ramsis.sim.SimulationSettings(seeds=(0, 1)))
    run = ramsis.sim.Engine.of_scenario(scenario, seed=0).serve(ramsis.sim.scheduler("lru"))
    problem = placement_milp.read_problem("digits")
    table = profile.latency_table("p95", max_batch=33)
    objects = [profile, profile.models[0], table, cluster, small_policy(), result,
               result.metrics[0], scenario, scenario.arrays, run, run.site, problem,
               problem.variants[0], ramsis.runtime.load("policies_out/example"),
               ramsis.WorkerProblem.create(table, slo_ms=100.0, workers=4,
                                           arrivals=ramsis.Poisson(100.0))]
    for value in objects:
        text = repr(value)
        assert len(text) <= 200, text
        assert text.isprintable(), text
    assert repr(profile) == ("<ProfileSet digits-cpu: 8 models, batches 1 to 32, "
                             "accuracy 0.8222 to 0.9671>")
    assert repr(run) == f"<Run of {run.requests} requests in 3 s: 2 workers, 186 batches>"
    assert repr(cluster.classes[0]) == "SloClass(slo_ms=25.0, share=1.0)"
    assert repr(ramsis.bounds.ReleasedRequests(*np.ones((2, 5)), np.arange(5))) == (
        "<ReleasedRequests: 5 release_ms, 5 deadline_ms, 5 model>")
