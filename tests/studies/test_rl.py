"""The scheduler that plays a trained agent: its decisions, its file, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError
from ramsis.sim import Engine, scheduler
from ramsis.sim import Run as SimulatedRun
from ramsis.studies.clockwork_rl.agent import Agent, Layer, read_agent, shipped_agent, write_agent
from tests.scenario.samples import document, model, scenario, stream
from tests.studies.agents import PLAIN, urgent_first

SIZES = [{"worker_type": "gpu", "batch": size, "latency_ms": ms}
         for size, ms in ((1, 3.0), (2, 5.0), (4, 7.0))]


def play(tmp_path: Path, agent: Agent, **changes: Any) -> SimulatedRun:
    path = tmp_path / "agent.json"
    write_agent(agent, path)
    made = scenario(**{"models": [model(copies=2, latency=SIZES)], **changes})
    return Engine.of_scenario(made, 0).serve(scheduler(f"rl:agent={path}"))


def test_a_hand_made_agent_does_what_its_weights_say(tmp_path):
    run = play(tmp_path, urgent_first(),
               models=[model("a", latency=SIZES), model("b", latency=SIZES)],
               start=[{"worker": "gpu", "models": ["a", "b"]}], streams=[
        stream("s", "a", slo_ms=50, workload={"times_ms": [0.0, 0.2, 0.4]}),
        stream("t", "b", slo_ms=20, workload={"times_ms": [0.5]})])
    # At 1 ms b, which is due first; at 3 ms, with 1 ms of work left, two requests of a; the third
    # once less than 2 ms of those are left, at 8 ms.
    assert run.model.tolist() == [1, 0, 0]
    assert run.size.tolist() == [1, 2, 1]
    assert run.start_ms.tolist() == [1, 4, 9]
    assert run.in_time.all()


def test_requests_lapse_that_no_batch_answers_in_time(tmp_path):
    never = Agent(1, (1, 2, 4), 1.0, **PLAIN, layers=(
        Layer(np.zeros((3, 5), np.float32), np.array([1, 0, 0, 0, 0], np.float32)),))
    run = play(tmp_path, never, streams=[stream(slo_ms=10, workload={"times_ms": [0.0]})])
    assert run.drop_ms.tolist() == [8.0]  # the first decision after 7 ms


def test_models_that_no_worker_holds_are_loaded(tmp_path):
    run = play(tmp_path, urgent_first(), start=[], duration_s=1,
               worker_types=[{"name": "gpu", "count": 1, "memory_mb": 150}],
               streams=[stream(slo_ms=500, workload={"load_qps": 50})])
    assert len(run.load_model) > 1
    assert run.answered.sum() + len(run.drop_request) == run.requests
    assert run.in_time.mean() > 0.5


def test_the_shipped_agent_is_sound_and_small():
    agent = shipped_agent()
    assert (agent.slots, agent.batch_sizes, agent.every_ms) == (12, (1, 2, 4, 8, 16), 1.0)
    assert agent.training["method"] == "maskable PPO"
    made = scenario(worker_types=[{"name": "gpu", "count": 2}], duration_s=2,
                    models=[model(copies=8, latency=SIZES)],
                    streams=[stream(slo_ms=24, workload={"load_qps": 500})])
    run = Engine.of_scenario(made, 0).serve(scheduler("rl"))
    assert run.in_time.mean() > 0.9
    assert run.answered.sum() + len(run.drop_request) == run.requests


def test_a_file_reads_back_as_it_was_to_the_bit(tmp_path):
    rng = np.random.default_rng(0)
    layers = tuple(Layer(rng.normal(size=shape).astype(np.float32),
                         rng.normal(size=shape[1]).astype(np.float32))
                   for shape in ((25, 8), (8, 84)))
    agent = Agent(12, (1, 2, 4, 8, 16), 1.0, **PLAIN, layers=layers, training={"seed": 3})
    write_agent(agent, tmp_path / "a.json")
    again = read_agent(tmp_path / "a.json")
    assert again.to_document() == agent.to_document()
    for one, other in zip(again.layers, layers, strict=True):
        assert one.weights.dtype == one.bias.dtype == np.float32
        assert (one.weights == other.weights).all()
        assert (one.bias == other.bias).all()


BAD = [
    ({"format": "ramsis.agent/2"}, "format: this version of ramsis.agent is not known here"),
    ({"slots": 2}, "layers[0].weights: network of the wrong shape: got '3 rows'; allowed: 5"),
    ({"batch_sizes": [1, 2]}, "layers[0].bias: network of the wrong shape: got '5 numbers'"),
    ({"batch_sizes": [2, 4, 8]}, "batch_sizes: not batch sizes"),
    ({"batch_sizes": [1, 4, 2]}, "batch_sizes: not batch sizes"),
    ({"every_ms": 0}, "every_ms: not a valid number"),
    ({"layers": []}, "layers: not a list"),
    ({"layers": [{"weights": [[1, 2]], "bias": [1]}]}, "layers[0].weights"),
    ({"layers": [{"weights": [["x"] * 5] * 3, "bias": [0] * 5}]}, "not a valid number"),
    ({"layers": [{"weights": [[1e999] * 5] * 3, "bias": [0] * 5}]}, "valid"),
    ({"count": {"low": 1, "high": 0, "unit": 1}}, "count.low: above high"),
    ({"work_ms": {"low": 0, "high": 1, "unit": 0}}, "work_ms.unit: not a valid number"),
    ({"more": 1}, "more: unknown field"),
    ({"training": 3}, "training"),
]


@pytest.mark.parametrize(("changes", "says"), BAD, ids=[says for _, says in BAD])
def test_bad_files_are_refused_in_a_line(tmp_path, changes, says):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**urgent_first().to_document(), **changes}))
    with pytest.raises(InputFileError) as raised:
        read_agent(path)
    assert says in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_the_command_line_plays_an_agent_and_refuses_a_bad_one(run, tmp_path):
    (tmp_path / "s.json").write_text(json.dumps(document(duration_s=2)))
    write_agent(urgent_first(), tmp_path / "agent.json")
    words = ("simulate", str(tmp_path / "s.json"), "--json", "--scheduler")
    done = run(*words, f"rl:agent={tmp_path / 'agent.json'}")
    assert done.rows[0]["in_time"] == 1.0
    done = run(*words, f"rl:agent={tmp_path / 'none.json'}")
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "cannot read file" in done.err
    done = run("validate", str(tmp_path / "agent.json"))
    assert done.code == 0
    assert "agent, 1 slot, 3 batch sizes" in done.out
