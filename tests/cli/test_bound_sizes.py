"""``ramsis bound`` for requests with a size."""

from typing import Any

import numpy as np
import pytest

from ramsis import profiles
from ramsis.arrivals import Poisson, SizeDistribution
from ramsis.sized import SizedProblem, path_bound, upper_bound
from scripts.sized import CELLS
from tests.cli.command import refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A profile without padding, one with, a file of sizes, and a trace with sizes."""
    folder = tmp_path_factory.mktemp("sized")
    for name in ("cpu", "flash"):
        profiles.save(CELLS[name].profile(), folder / f"{name}.json")
    rng = np.random.default_rng(0)
    sizes = CELLS["cpu"].sizes().sample(300, rng)
    (folder / "sizes.csv").write_text("\n".join(["size", *map(str, sizes)]) + "\n")
    arrival_s = np.cumsum(rng.exponential(1.0 / 150.0, 30))
    (folder / "trace.csv").write_text("arrival_s,size\n" + "".join(
        f"{time:.6f},{size}\n" for time, size in zip(arrival_s, sizes[:30], strict=True)))
    return folder


def test_trace_with_sizes_has_the_bound_of_its_requests(run, folder):
    command: list[Any] = ["bound", "--profiles", folder / "cpu.json", "--slo-ms", 300,
                          "--workers", 1, "--trace", folder / "trace.csv"]
    (row,) = run(*command, "--json").rows
    arrival_s, size = np.loadtxt(folder / "trace.csv", delimiter=",", skiprows=1).T
    problem = SizedProblem.of(CELLS["cpu"].profile(), SizeDistribution.of_sizes(size), slo_ms=300)
    bound = path_bound(problem, 1000.0 * arrival_s, size.astype(int))
    assert row["upper_bound"] == pytest.approx(bound.upper_bound, abs=1e-6)
    assert row["upper_bound"] <= row["upper_bound_without_padding"]
    assert (row["requests"], row["upper_bound_half_width"], row["unit"]) == (30, 0.0, "tokens")
    table = run(*command).out
    assert "without padding" in table
    assert "every scheduler, even one that knows all arrivals" in table


@pytest.mark.slow
def test_load_has_the_mean_bound_of_drawn_requests(run, folder):
    (row,) = run(
        "bound", "--profiles", folder / "flash.json", "--slo-ms", 60, "--workers", 1, "--load",
        9600, "--sizes", folder / "sizes.csv", "--max-batch", 16, "--seed", 3, "--json").rows
    sizes = SizeDistribution.of_sizes(np.loadtxt(folder / "sizes.csv", skiprows=1))
    problem = SizedProblem.of(CELLS["flash"].profile(), sizes, slo_ms=60, max_batch=16)
    bound = upper_bound(problem, Poisson(9600), seed=3)
    assert row["upper_bound"] == pytest.approx(bound.upper_bound)
    assert row["upper_bound_half_width"] == pytest.approx(bound.half_width)


@pytest.mark.parametrize(("options", "words"), [
    (["--sizes", "sizes.csv", "--cascades"], ["--cascades", "not for requests with a size"]),
    (["--sizes", "sizes.csv", "--violation-price", 1],
     ["--violation-price", "not for requests with a size"]),
    (["--size-column", "size"], ["--sizes", "missing"]),
])
def test_options_that_sizes_do_not_have(run, folder, options, words):
    options = [folder / option if option == "sizes.csv" else option for option in options]
    refused(run("bound", "--profiles", folder / "cpu.json", "--slo-ms", 300, "--workers", 1,
                "--load", 9, *options), 2, *words)
