"""The scaling table: a slow twin, its vectors, and files that are refused."""

import json
import math
import random
from pathlib import Path

import pytest

from ramsis.errors import InputFileError
from ramsis.files import canonical_json
from ramsis.runtime.scaling_table import ScalingControl, ScalingTable

VECTORS_FILE = Path(__file__).parents[2] / "docs" / "conformance" / "scaling-vectors.json"


def _document(seed):
    """A table of random thresholds that do not fall."""
    rng = random.Random(seed)
    levels, trends, stages = rng.randint(1, 5), rng.choice([1, 3]), rng.randint(0, 4)
    return {
        "format": "ramsis.scaling/1", "interval_s": 15.0,
        "startup_s": 15.0 * stages - (5.0 if stages else 0.0), "least": 1, "most": 20,
        "levels_qps": [round(10.0 * 1.7 ** i, 3) for i in range(levels)],
        "trends": [-0.25, 0.0, 0.25][:trends] if trends > 1 else [0.0],
        "smoothing": 0.5, "forecast_error": 0.2,
        "thresholds": [[sorted(rng.randint(0, 22) for _ in range(stages + 1))
                        for _ in range(trends)] for _ in range(levels)]}


def _nearest(places, value):
    return min(range(len(places)), key=lambda i: (abs(places[i] - value), i))


def _twin(document, load_qps, active, ages, trend):
    """Each worker of the row on its own, from the first to the last that there may be."""
    logs = [math.log(level) for level in document["levels_qps"]]
    level = _nearest(logs, math.log(load_qps)) if load_qps > 0 else 0
    limits = document["thresholds"][level][_nearest(document["trends"], trend)]
    number = 0
    for worker in range(1, 200):
        if worker <= active:
            limit = limits[-1]
        elif worker <= active + len(ages):
            limit = limits[min(max(ages[worker - active - 1], 1), len(limits) - 1)]
        else:
            limit = limits[0]
        if worker > max(limit, limits[0]):
            break
        number = worker
    return min(max(number, document["least"]), document["most"])


def _cases(seed, number):
    document, rng = _document(seed), random.Random(seed + 1)
    cases = []
    for _ in range(number):
        stages = len(document["thresholds"][0][0]) - 1
        ages = sorted((rng.randint(1, stages) for _ in range(rng.randint(0, 5) if stages else 0)),
                      reverse=True)
        load_qps = rng.choice([0.0, *document["levels_qps"], round(rng.uniform(1, 200), 2)])
        active, trend = rng.randint(0, 20), rng.choice([-0.3, -0.125, 0.0, 0.06, 0.2])
        cases.append({"load_qps": load_qps, "active": active, "ages": ages, "trend": trend,
                      "wanted": _twin(document, load_qps, active, ages, trend)})
    return {"table": document, "cases": cases}


def vectors_text():
    """The vectors, as they stand in the file."""
    return canonical_json({"vectors": [_cases(seed, 25) for seed in range(12)]})


def test_the_vectors_are_those_of_the_twin():
    assert VECTORS_FILE.read_text() == vectors_text()


def test_the_table_answers_as_the_vectors_say():
    for vector in json.loads(VECTORS_FILE.read_text())["vectors"]:
        table = ScalingTable.from_document(vector["table"], "vector")
        for case in vector["cases"]:
            assert table.wanted(case["load_qps"], case["active"], len(case["ages"]),
                                trend=case["trend"], ages=case["ages"]) == case["wanted"], case


def _control(**changes):
    document = {**_document(3), "levels_qps": [10.0, 100.0], "trends": [0.0], "startup_s": 40.0,
                "thresholds": [[[1, 2, 3, 4]], [[6, 7, 8, 9]]], **changes}
    return ScalingControl(ScalingTable.from_document(document, "table"))


def test_workers_that_start_are_kept_by_how_long_they_have():
    control = _control()
    assert control.wanted(100.0, 1, 0) == 6  # five begin to start
    # They are one decision old: up to the second worker they stay where the load is low.
    assert control.wanted(10.0, 1, 5) == 2
    control = _control()
    control.wanted(100.0, 1, 0)
    control.wanted(100.0, 1, 5)
    assert control.wanted(10.0, 1, 5) == 3  # two decisions old: up to the third


def test_a_forecast_counts_until_it_is_off():
    control = _control(forecast_error=0.3)
    assert control.wanted(10.0, 1, 0, forecast_qps=100.0) == 6
    assert control.believed
    assert control.wanted(11.0, 6, 0, forecast_qps=100.0) == 4  # 100 did not come
    assert not control.believed
    assert control.wanted(95.0, 4, 0, forecast_qps=100.0) == 6
    assert control.believed


_LEVELS = [10.0 * 1.02 ** at for at in range(120)]
_STEERED = {"levels_qps": _LEVELS, "thresholds": [[[at] * 4] for at in range(120)], "most": 120,
            "steering": {"accuracy": 0.8, "requests": 10_000.0, "loads_qps": [5.0, 10.0, 20.0],
                         "accuracies": [0.85, 0.8, 0.7]}}


@pytest.mark.parametrize("workers", [2, 3])
def test_a_load_is_corrected_by_the_accuracy_that_was_missed(workers):
    """A level every 2 % of the load, whose number is that of the workers wanted."""
    control, load = _control(**_STEERED), _LEVELS[60]  # 32.8 QPS, too many for so few
    assert control.wanted(load, workers, 0) == 60
    delivered = 0.8 - 0.1 * math.log2(load / workers / 10.0)
    short = load * 15.0 * (0.8 - delivered) / 10_000.0
    # Tables deliver 0.05 more at half the load of a worker.
    assert control.wanted(load, workers, 58) == 60 + round(
        short / 0.05 * math.log(2.0) / math.log(1.02))


def test_what_is_missed_is_corrected_within_bounds():
    control, load = _control(**_STEERED), _LEVELS[60]
    for _ in range(200):
        assert control.wanted(load, 2, 58) <= 60 + 11  # 25 %
    assert control.wanted(load, 2, 58) == 60 + 11
    control = _control(**_STEERED)
    for _ in range(200):
        least = control.wanted(load, 30, 30)
    assert least == 60 - 11


@pytest.mark.parametrize(("change", "words"), [
    ({"steering": {**_STEERED["steering"], "loads_qps": [5.0, 10.0]}},
     r"steering\.accuracies: list has the wrong length"),
    ({"steering": {**_STEERED["steering"], "accuracies": [0.7, 0.8, 0.9]}},
     r"steering\.accuracies\[1\]: accuracies do not fall: got 0.8; allowed: below 0.7"),
    ({"steering": {**_STEERED["steering"], "requests": 0.0}}, r"steering\.requests"),
    ({"steering": 3}, "steering: not an object"),
    ({"format": "ramsis.scaling/2"}, "version"),
    ({"levels_qps": [20.0, 10.0]}, r"levels_qps\[1\]: numbers do not rise: got 10.0"),
    ({"thresholds": [[[1]]]}, "thresholds"),
    ({"thresholds": [[[2, 1, 3, 4]], [[6, 7, 8, 9]]]}, r"thresholds\[0\]\[0\]\[1\]: numbers fall"),
    ({"window": 0}, "window: not a valid number: got 0"),
    ({"thresholds": [[[1, 2, 3, "x"]], [[6, 7, 8, 9]]]}, r"thresholds\[0\]\[0\]\[3\]"),
    ({"least": 30}, "least: more workers at least than at most: got 30"),
    ({"smoothing": 2}, "smoothing"),
])
def test_a_damaged_file_is_refused(change, words, tmp_path):
    document = {**_document(3), "levels_qps": [10.0, 100.0], "trends": [0.0], "startup_s": 40.0,
                "thresholds": [[[1, 2, 3, 4]], [[6, 7, 8, 9]]], **change}
    path = tmp_path / "scaling.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputFileError, match=words):
        ScalingTable.load(tmp_path)
