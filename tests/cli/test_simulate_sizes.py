"""``ramsis simulate`` of requests with a size."""

import csv
import json
from shutil import copy
from typing import Any

import numpy as np
import pytest

from ramsis import profiles
from ramsis.arrivals import SizeDistribution
from ramsis.cli.simulation.sized import _ONLY_SIZED
from ramsis.sim import ConstantLoad
from ramsis.sized import SIZED_SCHEDULERS, SizedProblem, simulate_sized, sized_scheduler
from ramsis.sized.simulate import serve_sized
from scripts.sized import CELLS
from tests.cli.command import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A profile, and files of sizes."""
    folder = tmp_path_factory.mktemp("sized")
    profiles.save(CELLS["cpu"].profile(), folder / "cpu.json")
    sizes = CELLS["cpu"].sizes().sample(2000, np.random.default_rng(0))
    (folder / "sizes.csv").write_text("\n".join(["size", *map(str, sizes)]) + "\n")
    return folder


@pytest.fixture
def base(folder):
    return ["simulate", "--profiles", folder / "cpu.json", "--slo-ms", 300, "--workers", 1]


@pytest.fixture
def sized(base, folder):
    return [*base, "--load", 90, "--duration-s", 3, "--sizes", folder / "sizes.csv"]


def test_names_that_only_sizes_have_are_those_of_the_registry():
    assert {*_ONLY_SIZED, "delay"} == SIZED_SCHEDULERS.keys()


def test_rows_are_those_of_the_library(run, sized, folder):
    texts = ("replanned-dp", "token-budget", "tei:max_batch=8", "infinity", "turbo-dp",
             "delay:wait_ms=2")
    document = json.loads(run(*sized, *(word for text in texts for word in ("--scheduler", text)),
                              "--seeds", 2, "--json").out)
    sizes = np.loadtxt(folder / "sizes.csv", skiprows=1)
    for text, row in zip(texts, document["rows"], strict=True):
        scheduler = sized_scheduler(text)
        problem = SizedProblem.of(
            CELLS["cpu"].profile(), SizeDistribution.of_sizes(sizes), slo_ms=300,
            max_batch=max(64, scheduler.max_batch))
        expected = simulate_sized(problem, scheduler, ConstantLoad(90, 3000), seeds=(0, 1)).row()
        assert row["label"] == text
        assert {name: row[name] for name in expected} == expected
        assert row["unit"] == "tokens"
        assert row["effective_accuracy"] <= row["upper_bound"] <= 1.0
    assert 8 <= document["rows"][1]["max_tokens"] <= 128


def test_a_trace_has_the_sizes_of_its_requests(run, base, tmp_path):
    rng = np.random.default_rng(1)
    arrival_s = np.round(np.cumsum(rng.exponential(0.011, 900)), 6)
    sizes = CELLS["cpu"].sizes().sample(900, rng)
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,size\n" + "".join(
        f"{at:.6f},{size}\n" for at, size in zip(arrival_s, sizes, strict=True)))
    (row,) = run(*base, "--trace", trace, "--scheduler", "delay:late=drop,batch=1", "--json").rows
    problem = SizedProblem.of(CELLS["cpu"].profile(), SizeDistribution.of_sizes(sizes), slo_ms=300)
    arrival_ms = 1000.0 * (arrival_s - arrival_s[0])
    played = serve_sized(problem, sized_scheduler("delay:late=drop,batch=1"), arrival_ms, sizes,
                         duration_ms=row["duration_s"] * 1000.0)
    assert row["queries"] == 900
    assert row["in_time"] == played.run.in_time.sum()
    assert [entry["share"] for entry in row["by_class"]] == pytest.approx(
        np.bincount(problem.class_of(sizes)) / 900)
    assert row["busiest_tenth_effective_accuracy"] is not None
    same, apart = (run(
        *base, "--trace", trace, "--sizes", file, "--scheduler", "delay:late=drop,batch=1",
        "--json").rows for file in (trace, copy(trace, tmp_path / "sizes.csv")))
    assert same == [row]
    several = run(*base, "--trace", trace, "--scheduler", "delay:late=drop,batch=1", "--seeds", 3,
                  "--json")
    assert "played once" in several.err
    (repeated,) = several.rows
    assert repeated["effective_accuracy"] == row["effective_accuracy"]
    assert repeated["queries"] == 3 * row["queries"]
    assert repeated["effective_accuracy_half_width"] == 0.0
    assert apart[0]["in_time"] != row["in_time"]  # drawn from the file
    # Schedulers that do not know sizes serve the same file only without them.
    refused(run(*base, "--trace", trace, "--scheduler", "greedy"), 3, "not a scheduler", "greedy")
    refused(run(*base, "--trace", trace, "--scheduler", "tei", "--size-column", "n"), 3,
            "no such column", "arrival_s, size")


def test_the_tables_name_classes_and_padding(run, sized):
    out = run(*sized, "--scheduler", "replanned-dp", "--max-violation", 0.5).out
    assert "padding" in out
    assert "in time by size:" in out
    assert "1–7 tokens" in out


def test_files_are_written(run, sized, tmp_path):
    run(*sized, "--scheduler", "turbo-dp", "--csv", tmp_path / "rows.csv",
        "--request-log", tmp_path / "log.csv", "--timeline", tmp_path / "line.json")
    (row,) = csv.DictReader((tmp_path / "rows.csv").read_text().splitlines())
    assert 0.5 < float(row["in_time_rate_1_7"]) <= 1.0
    assert len((tmp_path / "log.csv").read_text().splitlines()) == int(row["queries"]) + 1
    assert json.loads((tmp_path / "line.json").read_text())


def test_slower_batches_are_later_and_may_be_hidden(run, sized):
    def late(*options: Any) -> int:
        (row,) = run(*sized, "--scheduler", "replanned-dp", *options, "--json").rows
        assert row["late"] == 0 or row["told_slowness"] == 1
        return int(row["late"] + row["dropped"])

    usual, told, hidden = late(), late("--slowness", 1.3), late(
        "--slowness", 1.3, "--told-slowness", 1)
    assert usual < told < hidden


@pytest.mark.parametrize(("options", "words"), [
    (("--scheduler", "greedy"), ("not a scheduler of requests with a size", "replanned-dp")),
    (("--scheduler", "tei:max_tokens=9"), ("max_tokens", "256 tokens")),
    (("--scheduler", "tei", "--burst", 5), ("--burst", "requests with a size")),
    (("--scheduler", "tei", "--slow-spells", "profile"), ("--slow-spells",)),
    (("--scheduler", "tei", "--service", "distribution"), ("statistic", "distribution", "p95")),
])
def test_what_does_not_go_with_sizes_is_refused(run, sized, options, words):
    ran = run(*sized, *options)
    assert ran.code in (2, 3)
    assert all(word in ran.err for word in words), ran.err
    assert sum(not line.startswith("note: ") for line in ran.err.splitlines()) == 1


def test_sizes_and_profiles_have_to_be_there(run, base, folder):
    refused(run(*base, "--load", 90, "--scheduler", "replanned-dp"), 2, "--sizes", "missing")
    refused(run("simulate", "--profiles", "digits-cpu", "--slo-ms", 300, "--workers", 1,
                "--load", 90, "--scheduler", "tei", "--sizes", folder / "sizes.csv"), 2,
            "no times by size", "digits-cpu")
    refused(run(*base[:-3], "300:0.5,100:0.5", "--workers", 1, "--load", 90, "--scheduler", "tei",
                "--sizes", folder / "sizes.csv"), 2, "--slo-ms", "one SLO")
