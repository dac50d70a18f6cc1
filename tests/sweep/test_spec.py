"""Specifications: what they stand for, and how bad ones are refused."""


import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.sweep import SweepSpec
from ramsis.synthesis.schedulers import fleet_scheduler
from ramsis.synthesis.settings import PAPER
from tests.sweep.samples import document, spec


def test_a_grid_stands_for_all_combinations_the_scheme_varying_first():
    cells = spec("p", workers=[2, 4], load_qps="100:300:100").cells
    assert len(cells) == 12
    assert [(c.workers, c.load_qps, c.scheduler) for c in cells[:3]] == [
        (2, 100.0, cells[0].scheduler), (2, 100.0, "jellyfish-plus"),
        (2, 200.0, cells[0].scheduler)]
    assert cells[-1].workers == 4


def test_grids_take_the_shared_keys_and_replace_their_own():
    base = {**document("p", scheduler="greedy"), "grid": [{}, {"workers": 8}, {"seeds": 1}]}
    assert [cell.workers for cell in SweepSpec.of(base).cells] == [2, 2, 8, 8]  # none twice


def test_a_trace_lasts_as_long_as_it_is_and_a_load_half_a_minute():
    base = {"profiles": "p", "workers": 1, "slo_ms": 1, "scheduler": "greedy"}
    (traced,) = SweepSpec.of({**base, "trace": "day"}).cells
    (constant,) = SweepSpec.of({**base, "load_qps": 1}).cells
    assert (traced.duration_s, constant.duration_s) == (None, 30.0)


@pytest.mark.parametrize(("changes", "words"), [
    ({"wokers": 3}, ["unknown key", "wokers", "workers"]),
    ({"workers": 0}, ["workers", "got 0", ">= 1"]),
    ({"workers": []}, ["workers", "one or more"]),
    ({"workers": [2, 2]}, ["workers", "[2, 2]"]),
    ({"workers": True}, ["workers", "True"]),
    ({"network_ms": 10 ** 400}, ["network_ms", "a number of ms from 0"]),
    ({"arrivals": "steady"}, ["arrivals", "steady", "renewal:CV"]),
    ({"arrivals": 2}, ["arrivals", "text"]),
    ({"arrivals": "tests.arrivals.processes:Wrapped"}, ["arrivals", "processes:Wrapped"]),
    ({"scheduler": "round-robin:arrivals=evil:f,service=p95,max_queue=4"},
     ["scheduler", "not imported unless you name it", "--arrivals evil:f"]),
    ({"arrivals": "poisson", "cv": 2}, ["arrivals", "cv", "renewal:2"]),
    ({"cv": 0}, ["cv", "> 0"]),
    ({"slo_ms": -1.0}, ["slo_ms", "-1.0"]),
    ({"slo_ms": float("nan")}, ["slo_ms", "nan"]),
    ({"load_qps": "400:100:50"}, ["load_qps", "400:100:50"]),
    ({"scheduler": "jelly"}, ["scheduler", "jelly", "jellyfish-plus"]),
    ({"scheduler": "round-robin:grip=fixed:10"}, ["scheduler", "grip", "grid"]),
    ({"scheduler": "round-robin:levels=1"}, ["scheduler", "levels", ">= 2"]),
    ({"scheduler": "central-queue:objective=per-decision"},
     ["scheduler", "objective", "per-query"]),
    ({"scheduler": "worker"}, ["scheduler", "worker", "round-robin"]),
    ({"scheduler": "central-queue:violation_price=-1"},
     ["violation_price", "from 0 to 1000000"]),
    ({"scheduler": "central-queue:max_violation=2"}, ["max_violation", "(0, 1]"]),
    ({"scheduler": "round-robin:max_violation=few"}, ["max_violation", "(0, 1]"]),
    ({"scheduler": "central-queue:slo_classes=4:1"},
     ["scheduler", "slo_classes=4:1", "max_queue"]),
    ({"scheduler": "central-queue:max_queue=0"}, ["max_queue", "from 1 to 10000"]),
    ({"scheduler": "central-queue:grid=fixed:x"}, ["grid", "fixed:x"]),
    ({"told": 0}, ["told", "> 0"]),
    ({"monitor_ms": "long"}, ["monitor_ms", "long"]),
    ({"scheduler": "round-robin:objective=most"}, ["objective", "most"]),
    ({"service": "p42"}, ["service", "p42", "p95"]),
    ({"models": "some"}, ["models", "some", "pareto"]),
    ({"model_sets": {"two": "a"}}, ["model_sets.two"]),
    ({"trace": "day"}, ["load_qps", "trace"]),
    ({"seeds": 1.5}, ["seeds", "1.5"]),
    ({"monitor": True}, ["monitor", "on, off"]),
    ({"duration_s": 0}, ["duration_s", "round-robin"]),
    ({"grid": {"workers": 1}}, ["grid", "[[grid]]"]),
])
def test_a_bad_specification_is_refused_by_its_key(changes, words):
    with pytest.raises(InputFileError) as refusal:
        spec("p", **changes)
    message = str(refusal.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_missing_key_is_named():
    for key in ("profiles", "workers", "slo_ms", "scheduler"):
        given = document("p")
        del given[key]
        with pytest.raises(InputFileError, match=f"{key}: missing"):
            SweepSpec.of(given)


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text("workers = [1,")
    with pytest.raises(InputFileError, match="not valid TOML"):
        SweepSpec.load(path)
    with pytest.raises(InputFileError, match="cannot read"):
        SweepSpec.load(tmp_path / "none.toml")


def test_a_process_has_one_name_and_cv_is_short_for_one():
    (given,), (short,) = (spec("p", scheduler="greedy", load_qps=1, **keys).cells
                          for keys in ({"arrivals": "renewal:2.0"}, {"cv": 2}))
    assert given == short
    assert (given.arrivals, given.cv) == ("renewal:2", 2.0)
    cells = spec("p", scheduler="greedy", load_qps=1, arrivals=[
        "poisson", "fixed-rate", "negative-binomial:4"]).cells
    assert [(cell.arrivals, cell.cv) for cell in cells] == [
        ("poisson", 1.0), ("fixed-rate", 0.0), ("negative-binomial:4", None)]


def test_commas_within_a_value_do_not_end_it():
    made = fleet_scheduler("round-robin:arrivals=mmpp:ratio=4,burst-ms=50,share=0.1,grid=fixed:10")
    assert made.makes_policies
    assert made.given == {"arrivals": "mmpp:ratio=4,burst-ms=50,share=0.1", "grid": "fixed:10"}


def test_what_the_paper_does_is_one_word_among_the_settings():
    made = fleet_scheduler("round-robin:max_queue=8,paper")
    assert made.given == {**PAPER, "max_queue": 8}
    for text in ("round-robin:paper,late=drop", "round-robin:paper=1", "central-queue:paper"):
        with pytest.raises(InvalidValueError):
            fleet_scheduler(text)
