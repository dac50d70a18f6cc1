"""Profiles of instances: the three kinds of file, and what is refused."""

from functools import partial

import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.profiles.importers import Given, import_profile
from ramsis.profiles.importers.instances import InstanceRow, read_instance_profile
from tests.profiles import samples

LONG = "model,instance,batch,processes,latency_ms,throughput_rps\n"
PARVAGPU = "Mig instance,Batch size,Workload Number,Throughput,Latency\n"
JOINED = "model,instance_slices,batch,processes,throughput_per_process_rps,latency_s,extra\n"


written = partial(samples.written, name="resnet.csv")


def test_the_three_kinds_say_the_same(tmp_path):
    expected = InstanceRow("resnet", "2", 8, 3, 29.0, 600.3)
    for text in (LONG + "resnet,2,8,3,29,600.3\n",
                 LONG.replace("_ms", "_s") + "resnet,2,8,3,0.029,600.3\n",
                 PARVAGPU + "2,8,3,200.1,0.029\n2,64,3,0,0\n",
                 JOINED + "resnet,2,8,3,200.1,0.029,\nresnet,2,64,3,0,0,\n"):
        assert read_instance_profile(written(tmp_path, text)) == (expected,)


def test_a_folder_has_a_file_for_each_model(tmp_path):
    written(tmp_path, PARVAGPU + "1,1,1,50,0.02\n", name="a.csv")
    written(tmp_path, PARVAGPU + "7,1,1,90,0.01\n", name="b.csv")
    assert [(row.model, row.instance) for row in read_instance_profile(tmp_path)] == [
        ("a", "1"), ("b", "7")]


def test_optional_columns(tmp_path):
    text = (LONG.strip() + ",gpu_type,memory_mb\nr,1g.10gb,1,1,5,200,A100,900\n"
            "r,1g.10gb,1,1,4,250,H100,\n")
    first, second = read_instance_profile(written(tmp_path, text))
    assert (first.gpu_type, first.memory_mb) == ("A100", 900)
    assert (second.gpu_type, second.memory_mb) == ("H100", None)


@pytest.mark.parametrize(("text", "says"), [
    (LONG + "r,1,0,1,5,200\n", "line 2, batch: not a valid number: got 0"),
    (LONG + "r,1,1,1,-5,200\n", "line 2, latency_ms"),
    (LONG + "r,1,1,1,5,nan\n", "line 2, throughput_rps: value is not positive: got nan"),
    (LONG + "r,1,1,1,5,200\nr,1,1,1,6,200\n", "line 3: the same case stands twice: got 'r'"),
    (LONG + "r,1,1,1,0,0\n", "no batch fits any instance"),
    (LONG.replace("_ms", "_us") + "r,1,1,1,5,200\n", "unknown column or unit: got 'latency_us'"),
    (LONG.replace(",latency_ms", "") + "r,1,1,1,200\n", "one of latency_ms, latency_s"),
    (JOINED.replace("batch", "size") + "r,1,1,1,5,200,\n", "unknown column or unit: got 'size'"),
])
def test_what_is_refused(text, says, tmp_path):
    with pytest.raises(InputFileError) as error:
        read_instance_profile(written(tmp_path, text))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


IMPORTED = LONG.strip() + ",gpu_type\n" + "".join(
    f"{model},{instance},{batch},{processes},{10 * batch * processes + more},99,{gpu}\n"
    for model, more in (("r", 0.5), ("s", 1.5)) for instance in ("1g", "2g") for batch in (2, 1)
    for processes in (1, 2) for gpu in ("A30", "H100") if (instance, gpu) != ("2g", "H100"))


def test_a_profile_is_made_of_one_kind_of_instance(tmp_path):
    path = written(tmp_path, IMPORTED)
    accuracy = {"r": 0.7, "s": 0.8}
    found = import_profile(path, accuracy=accuracy, given=Given(instance="2g", processes=2))
    assert {model.name: {batch.batch: batch.mean_ms for batch in model.batches}
            for model in found.models} == {"r": {1: 20.5, 2: 40.5}, "s": {1: 21.5, 2: 41.5}}
    assert found.measurement["format"] == "instances"
    with pytest.raises(InputFileError, match="allowed: --instance A30/1g, H100/1g, A30/2g with"):
        import_profile(path, accuracy=accuracy)
    with pytest.raises(InputFileError, match="got '--instance 1g --processes 1'"):  # of two GPUs
        import_profile(path, accuracy=accuracy, given=Given(instance="1g"))
    of_one = import_profile(path, accuracy=accuracy, given=Given(instance="H100/1g"))
    assert len(of_one.models) == 2
    (tmp_path / "other").mkdir()
    plain = written(tmp_path / "other", "model,batch,p95_ms,accuracy\nr,1,5,0.7\n")
    with pytest.raises(InvalidValueError, match="no instances of GPUs"):
        import_profile(plain, "table", given=Given(instance="1g"))


def test_a_folder_of_parvagpu_is_imported(tmp_path):
    for name in ("a", "b"):
        written(tmp_path, PARVAGPU + "1,1,1,50,0.02\n7,1,1,90,0.01\n", name=f"{name}.csv")
    found = import_profile(tmp_path, accuracy={"a": 0.5, "b": 0.6}, given=Given(instance="7"))
    assert [(model.name, model.batches[0].mean_ms) for model in found.models] == [
        ("a", 10.0), ("b", 10.0)]


def test_the_reference_profile(reference_dir):
    path = reference_dir / "partitions" / "parvagpu_profiles.csv"
    rows = read_instance_profile(path)
    assert len({row.model for row in rows}) == 11
    assert {row.instance for row in rows} == {"1", "2", "3", "4", "7"}
    (row,) = [r for r in rows if r.model == "bert" and (r.instance, r.batch, r.processes) == (
        "1", 1, 2)]
    assert row.rate_rps == pytest.approx(2 * 52.42)
    # Throughput of one process is a batch over its latency, which is rounded to a millisecond.
    off = [r for r in rows if r.latency_ms >= 100 and
           abs(r.rate_rps - 1000 * r.processes * r.batch / r.latency_ms) > 0.02 * r.rate_rps]
    assert len(off) < 0.02 * len(rows)
