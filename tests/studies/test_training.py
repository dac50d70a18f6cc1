"""Training: what is trained is what is played; it learns, goes on, and refuses what is not its."""

import sys
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.scenario import Scenario
from ramsis.studies.clockwork_rl import REWARDS, needing_extra
from tests.scenario.samples import model, scenario, stream
from tests.studies.agents import urgent_first

SIZES = [{"worker_type": "gpu", "batch": size, "latency_ms": ms}
         for size, ms in ((1, 3.0), (2, 5.0), (4, 7.0))]


def busy() -> Scenario:
    return scenario(worker_types=[{"name": "gpu", "count": 2}], duration_s=1,
                    models=[model(copies=8, latency=SIZES)],
                    streams=[stream(slo_ms=24, workload={"load_qps": 500})])


@pytest.fixture(scope="module")
def training():
    pytest.importorskip("sb3_contrib")
    return needing_extra("training")


@pytest.fixture(scope="module")
def settings(training):
    return training.TrainingSettings(steps=512, runs=2, first_steps=100)


def test_the_played_agent_decides_as_sb3_predicts(training, settings):
    model, _ = training.trainer(busy(), settings)
    model.learn(512)
    agent = training.agent_of(model, {})
    env = training.ClusterEnv(busy(), first_steps=60_000)
    observation, _ = env.reset(seed=5)
    rng, ran = np.random.default_rng(0), 0
    for _ in range(400):
        mask = env.action_masks()
        predicted, _ = model.predict(observation, action_masks=mask, deterministic=True)
        played = agent.act(observation, mask)
        assert played.tolist() == predicted.tolist()
        ran += played[:12].sum()
        chosen = predicted if rng.random() < 0.5 else np.zeros(24, dtype=int)
        observation, *_ = env.step(chosen)


def test_the_distribution_is_sb3s_where_it_matters(training):
    torch = pytest.importorskip("torch")
    from sb3_contrib.common.maskable.distributions import MaskableMultiCategoricalDistribution

    from ramsis.studies.clockwork_rl.policy import SlotDistribution

    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 84, generator=generator)
    masks = (torch.rand(50, 84, generator=generator) < 0.6).numpy()
    masks[:, 0:24:2] = masks[:, 24::5] = True
    ours = SlotDistribution(12, 5).proba_distribution(logits)
    theirs = MaskableMultiCategoricalDistribution([2] * 12 + [5] * 12).proba_distribution(logits)
    ours.apply_masking(masks)
    theirs.apply_masking(masks)
    assert (ours.mode() == theirs.mode()).all()
    actions = ours.sample()
    allowed = np.take_along_axis(masks, np.arange(0, 24, 2) + actions[:, :12].numpy(), axis=1)
    assert allowed.all()
    parts = [one.log_prob(action) for one, action in
             zip(theirs.distributions, actions.T, strict=True)]
    counted = sum(parts[i] + actions[:, i] * parts[12 + i] for i in range(12))
    assert torch.allclose(ours.log_prob(actions), counted, atol=1e-5)
    # What chance draws comes as often as the distribution says.
    one = SlotDistribution(12, 5).proba_distribution(logits[:1].repeat(4000, 1))
    one.apply_masking(masks[:1].repeat(4000, axis=0))
    share = one.sample()[:, :12].float().mean(dim=0)
    assert torch.allclose(share, theirs_run(theirs)[0], atol=0.04)


def theirs_run(theirs: Any) -> Any:
    import torch

    return torch.stack([one.probs[:, 1] for one in theirs.distributions[:12]], dim=1)


def test_a_training_is_written_and_taken_up(training, settings, tmp_path):
    path = tmp_path / "checkpoint"
    first, found = training.train(busy(), settings, checkpoint=path)
    again, same = training.train(busy(), settings)
    assert found == same
    assert first.to_document() == again.to_document()
    assert first.training["seed"] == 0
    longer = training.TrainingSettings(**{**vars(settings), "steps": 1024})
    _, more = training.train(busy(), longer, checkpoint=path)
    assert more[: len(found)] == found
    assert more[-1].steps == 1024
    other = training.TrainingSettings(**{**vars(settings), "reward": REWARDS["sparse"]})
    with pytest.raises(InputFileError, match="checkpoint of other settings"):
        training.train(busy(), other, checkpoint=path)
    with pytest.raises(InputFileError, match="checkpoint of another training"):
        training.train(scenario(), settings, checkpoint=path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputFileError, match="not a checkpoint"):
        training.train(busy(), settings, checkpoint=path)


@pytest.mark.slow
def test_imitation_teaches(training):
    made = scenario(worker_types=[{"name": "gpu", "count": 2}], duration_s=2,
                    models=[model(copies=8, latency=SIZES)],
                    streams=[stream(slo_ms=24, workload={"load_qps": 620})])
    chosen = training.TrainingSettings(steps=64, runs=2, imitate=4000)
    untaught = training.evaluate(
        training.agent_of(training.trainer(made, chosen)[0], {}, True), made, 0)
    _, found = training.train(made, chosen)
    assert found[0].in_time > untaught.in_time + 0.05


def test_training_continues_from_an_agent(training, settings):
    before, _ = training.train(busy(), settings)
    model, _ = training.trainer(busy(), settings)
    training.take_up(model, before)
    after = training.agent_of(model, {})
    for layer, same in zip(before.layers, after.layers, strict=True):
        assert (layer.weights == same.weights).all()
        assert (layer.bias == same.bias).all()
    with pytest.raises(InputFileError, match="agent of another shape"):
        training.train(busy(), settings, start=urgent_first())


def test_an_evaluation_has_the_share_of_each_stream(training):
    made = scenario(duration_s=1, streams=[
        stream("soon"), stream("never", slo_ms=9, workload={"times_ms": [1, 2]})])
    played = training.evaluate(urgent_first(), made, 0)
    assert played.by_stream == {"soon": 1.0, "never": 0.0}
    assert 0.8 < played.in_time < 1.0


def test_without_the_extra_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    for name in ("training", "policy", "environment"):
        monkeypatch.delitem(sys.modules, f"ramsis.studies.clockwork_rl.{name}", raising=False)
    with pytest.raises(InvalidValueError, match=r"allowed: pip install 'ramsis\[rl\]'$"):
        needing_extra("training")
