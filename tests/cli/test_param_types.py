"""The words of the command line: what each stands for, and how bad ones are refused."""

import sys
from pathlib import Path
from typing import Any

import click
import pytest

from ramsis.arrivals import Arrivals, Renewal
from ramsis.cli.options import param_types as params
from ramsis.cli.options.param_types import ByType, TraceName, Word
from ramsis.cluster.cluster import SloClass
from ramsis.errors import InvalidValueError
from ramsis.plugins import trusting

OPTION = click.Option(["--that"])


def read(word: Any, text: str) -> Any:
    return word.convert(text, OPTION, None)


@pytest.mark.parametrize(("word", "text", "meant"), [
    (params.LOADS, "400", (400.0,)),
    (params.LOADS, "100:300:100,50", (50.0, 100.0, 200.0, 300.0)),
    (params.ARRIVALS, "renewal:2", Arrivals.parse("renewal:2")),
    (params.ARRIVALS, "negative-binomial:1", Arrivals.parse("poisson")),
    (params.SLOS, "100", (SloClass(100.0),)),
    (params.SLOS, "150:0.7,100:0.3", (SloClass(150.0, 0.7), SloClass(100.0, 0.3))),
    (params.WORKERS, "4", ByType({"all": 4}, False, "4")),
    (params.WORKERS, "gpu=4, cpu=40", ByType({"gpu": 4, "cpu": 40}, True, "gpu=4, cpu=40")),
    (params.PROFILES, "digits-cpu", ByType({"all": "digits-cpu"}, False, "digits-cpu")),
    (params.PROFILES, "a=x.json,b=y.json",
     ByType({"a": "x.json", "b": "y.json"}, True, "a=x.json,b=y.json")),
    (params.COSTS, "gpu=3,cpu=0.5", ByType({"gpu": 3.0, "cpu": 0.5}, True, "gpu=3,cpu=0.5")),
    (params.LIMITS, "gpu=8", ByType({"gpu": 8}, True, "gpu=8")),
    (params.GRID, "fixed:60", "fixed:60"),
    (params.GRID, "model", "model"),
    (params.TRACE, "nowhere.txt", TraceName("nowhere.txt", Path("nowhere.txt"))),
    (params.FIGURE, "a/figure.png", Path("a/figure.png")),
    (params.MODELS, "b, a", ["b", "a"]),
    (params.BATCH_SIZES, "8,1:4", (1, 2, 3, 4, 8)),
    (params.BATCH_SIZES, "1:8:3", (1, 4, 7, 8)),
    (params.DIMENSION, "height=224", ("height", 224)),
])
def test_a_word_stands_for_an_object(word, text, meant):
    found = read(word, text)
    assert found == meant
    assert type(found) is type(meant)


def test_a_shipped_trace_is_found_by_its_name():
    assert read(params.TRACE, "day").path.is_file()


@pytest.mark.parametrize(("word", "text", "says"), [
    (params.LOADS, "nan", ("load", "'nan'", "allowed: ")),
    (params.LOADS, "50:200", ("load", "'50:200'", "from:to:step")),
    (params.LOADS, "400:100:50", ("load", "whole number of steps")),
    (params.ARRIVALS, "steady", ("arrivals", "'steady'", "poisson", "renewal:CV", "fixed-rate")),
    (params.ARRIVALS, "renewal:x", ("renewal:x", "renewal:CV")),
    (params.SLOS, "soon", ("--that", "'soon'", "MS:SHARE")),
    (params.SLOS, "-1", ("slo_ms", "-1.0", "> 0")),
    (params.SLOS, "60:2", ("class of 60 ms", "2.0", "(0, 1]")),
    (params.WORKERS, "1.5", ("--that", "'1.5'", "integer", "TYPE=N")),
    (params.WORKERS, "a=1,b=many", ("--that: b", "'many'")),
    (params.WORKERS, "a=1,2", ("--that", "'a=1,2'", "TYPE=VALUE")),
    (params.WORKERS, "a=1,a=2", ("--that", "TYPE=VALUE")),
    (params.PROFILES, "a=x.json,y.json", ("--that", "TYPE=VALUE")),
    (params.COSTS, "3", ("--that", "'3'", "TYPE=VALUE")),
    (params.COSTS, "gpu=0", ("--that: gpu", "'0'", "> 0")),
    (params.COSTS, "gpu=inf", ("--that: gpu", "'inf'", "finite")),
    (params.LIMITS, "gpu=1.5", ("--that: gpu", "1.5", "whole number >= 1")),
    (params.GRID, "fixed:0", ("grid", "got 0", "from 1")),
    (params.GRID, "fine", ("grid", "'fine'", "fixed:D", "model")),
    (params.FIGURE, "figure.doc", ("--that", "figure.doc", ".png, .pdf, .svg")),
    (params.MODELS, "a,a", ("--that", "'a,a'", "each once")),
    (params.BATCH_SIZES, "0", ("--that", "'0'", "from:to:step")),
    (params.DIMENSION, "width=0", ("--that", "'width=0'", "SIZE from 1")),
])
def test_a_bad_word_is_refused_with_where_what_and_what_is_allowed(word, text, says):
    with pytest.raises(InvalidValueError) as caught:
        read(word, text)
    message = str(caught.value)
    assert "\n" not in message
    for part in says:
        assert part in message


def test_every_word_has_a_name_and_takes_an_object_as_it_is():
    words = [value for value in vars(params).values() if isinstance(value, Word)]
    assert len(words) >= 14
    for word in words:
        assert word.name
        assert word.convert(ByType({"a": 1}, True, ""), OPTION, None) == ByType({"a": 1}, True, "")


def test_a_file_whose_name_has_an_equals_sign_is_one_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b.json").touch()
    assert read(params.PROFILES, "a=b.json").one == "a=b.json"


def test_a_module_of_the_current_folder_is_seen_only_when_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "process_of_mine.py").write_text(
        "from ramsis.arrivals import Renewal\ndef make(load_qps):\n"
        "    return Renewal(load_qps, 3.0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.delitem(sys.modules, "process_of_mine", raising=False)
    for text in ("renewal:2", "poisson", "negative-binomial:4"):
        read(params.ARRIVALS, text)
        assert "" not in sys.path
    with trusting(["process_of_mine:make"]):
        assert read(params.ARRIVALS, "process_of_mine:make")(50.0) == Renewal(50.0, 3.0)
    assert sys.path[-1] == ""
    monkeypatch.delitem(sys.modules, "process_of_mine")
