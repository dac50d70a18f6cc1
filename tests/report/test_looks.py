"""Looks of lines by name, states that occur, and sentences in the place of empty figures."""

import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from ramsis.report.figure import COLOURS, line_look, look_numbers
from ramsis.report.page.parts import Axis, Note, Series, curves, dots
from ramsis.report.states import rare_from
from ramsis.synthesis import SynthesisSettings
from ramsis.synthesis.generate import modelled_policy


def test_a_scheduler_has_one_colour_in_whatever_company_it_is():
    alone = look_numbers(["Jellyfish+"])["Jellyfish+"]
    among = look_numbers(["D = 2", "round-robin:paper", "round-robin", "jellyfish-plus, promised"])
    assert among["jellyfish-plus, promised"] == alone
    assert list(among) == ["D = 2", "round-robin:paper", "round-robin", "jellyfish-plus, promised"]
    both = [line_look(among[name]) for name in ("round-robin:paper", "round-robin")]
    assert both[0]["color"] == both[1]["color"]
    assert both[0]["linestyle"] != both[1]["linestyle"]


def test_more_lines_than_colours_repeat_no_look():
    looks = look_numbers(f"name {i}" for i in range(2000))
    assert sorted(looks.values()) == list(range(2000))
    assert len({str(line_look(number)) for number in range(56)}) == 56


def test_pages_and_figures_have_the_same_colours():
    style = resources.files("ramsis.report.page").joinpath("page.css").read_text("utf-8")
    light = style[:style.index("@media")]
    assert tuple(re.findall(r"--c\d: (#\w+)", light)) == COLOURS


def test_queues_longer_than_what_arrives_within_the_slack_used_are_rare(tiny):
    settings = SynthesisSettings(slo_ms=100.0, workers=2, dispatch="central-queue", max_queue=20,
                                 grid="fixed:10", headroom=0.0)
    policy = modelled_policy(tiny, 20.0, settings)
    rare = rare_from(policy)
    assert rare[0] == len(policy.slack_ms)  # a queue of one occurs with any slack
    assert (np.diff(rare) <= 0).all()
    assert rare[-1] == 0  # 20 requests in 100 ms, of which 2 are expected


def test_one_place_or_nothing_but_zero_is_a_sentence():
    load = Axis("load (queries/s)")
    line = [Series("promised", [51.7381], [0.95453]),
            Series("upper bound", [51.7381], [0.9551], ref=True)]
    note = curves("Promise", load, Axis("effective accuracy"), line)
    assert note == Note("Promise, load 51.74 queries/s: promised 0.9545; upper bound 0.9551.")
    late = Axis("violations", percent=True, zero=True)
    assert curves("Violations", load, late, [Series("a", [1, 2], [0.0, 0.0])]) == Note(
        "Violations: 0 % throughout.")
    assert dots("Violations", late, [("greedy", {"v": 0.01, "v_half_width": 0.002})],
                {"simulated": "v"}) == Note("Violations, greedy: simulated 1 % ± 0.2 %.")


@pytest.mark.parametrize(("command", "more"), [
    ("bound", ["--load", "50,100"]),
    ("generate", ["--load", "50,100", "--max-queue", 4, "--out", "out"])])
def test_commands_draw_what_they_print(tmp_path, run, monkeypatch, tiny_file, command, more):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    run(command, "--profiles", tiny_file, "--slo-ms", 100, "--workers", 4, *more,
        "--plot", "a.svg")
    drawn = Path("a.svg").read_text()
    assert "upper bound (one model per request)" in drawn
