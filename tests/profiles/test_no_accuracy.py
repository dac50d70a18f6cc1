"""One model without an accuracy: it counts 1, and figures are shares of requests in time."""

import json

import numpy as np
import pytest

from ramsis.arrays import fraction, ratio
from ramsis.errors import InputFileError
from ramsis.profiles import load
from ramsis.profiles.importers import import_profile
from tests.cli.command import refused
from tests.profiles.samples import written

ONE = "model,batch,p95_ms\nsmall,1,1000\n"
TWO = ONE + "large,1,2000\n"


def test_the_only_model_needs_no_accuracy(run, tmp_path):
    ran = run("profile", "import", written(tmp_path, ONE), "--out", tmp_path / "one.json")
    assert ran.code == 0, ran.err
    assert "the only model counts 1" in ran.err
    assert load(str(tmp_path / "one.json")).models[0].accuracy == 1.0


def test_models_to_choose_from_need_accuracies_and_the_advice_works(run, tmp_path):
    table, out = written(tmp_path, TWO), tmp_path / "out.json"
    ran = run("profile", "import", table, "--out", out)
    refused(ran, 3, "no accuracy for this model", "--accuracy FILE", "--models small")
    assert run("profile", "import", table, "--models", "small", "--out", out).code == 0


def test_an_accuracy_file_that_does_not_name_the_only_model_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"no accuracy for this model.*it has smal"):
        import_profile(written(tmp_path, ONE), accuracy={"smal": 0.7})


def test_a_profile_file_of_one_model_needs_no_accuracy(tmp_path):
    model = {"name": "m", "batches": [{"batch": 1, "p95_ms": 5.0}]}
    document = {"format": "ramsis.profile/1", "name": "one", "models": [model]}
    assert load(str(written(tmp_path, json.dumps(document), "one.json"))).models[0].accuracy == 1
    document["models"] = [model, {**model, "name": "n"}]
    with pytest.raises(InputFileError, match=r"models\[0\]\.accuracy: field is missing"):
        load(str(written(tmp_path, json.dumps(document), "two.json")))


@pytest.mark.parametrize(("dispatch", "workers", "load_qps"), [
    ("central-queue", 7, 5), ("central-queue", 1, 0.95), ("round-robin", 7, 4.9),
    ("round-robin", 7, 5.95)])
def test_accuracy_1_is_written(run, tmp_path, dispatch, workers, load_qps):
    """Sums of probabilities passed 1 by a rounding error, and no file could hold them."""
    table = written(tmp_path, ONE)
    assert run("profile", "import", table, "--out", tmp_path / "p.json").code == 0
    ran = run("generate", "--profiles", tmp_path / "p.json", "--slo-ms", 2000, "--workers",
              workers, "--load", load_qps, "--dispatch", dispatch, "--out", tmp_path / "set")
    assert ran.code == 0, ran.err
    assert "answered in time" in ran.out
    assert "effective accuracy" not in ran.out


def test_fractions_are_clipped_where_they_arise():
    tenths = np.full(10, 0.1)
    assert float(np.cumsum(tenths)[-1]) != 1.0
    assert fraction(1.0000000000000002) == 1.0
    assert fraction(-1e-17) == 0.0
    assert ratio(1.0000000000000002, 1.0) == 1.0
    assert ratio(0.0, 0.0) is None
