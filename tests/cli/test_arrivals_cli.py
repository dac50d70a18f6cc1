"""``ramsis arrivals fit`` and processes of the user's own on the command line."""

import json
import sys

import numpy as np
import pytest

from ramsis.arrays import FloatArray
from ramsis.arrivals import Arrivals, NegativeBinomial
from ramsis.arrivals.fitting import fit_trace
from tests.cli.command import refused

OWN = '''
from ramsis.arrivals import Poisson

class Mine(Poisson):
    def describe(self):
        return {"process": "{module}:Mine"}
'''


@pytest.fixture
def trace(tmp_path):
    """Two thousand requests in clumps."""
    times = NegativeBinomial(100.0, 4.0).sample(20_000.0, np.random.default_rng(1))
    path = tmp_path / "trace.csv"
    path.write_text("user,arrival_ms\n" + "".join(f"x,{t:.9f}\n" for t in times))
    return path


def test_the_fit_says_which_process_and_how_to_name_it(run, trace):
    ran = run("arrivals", "fit", trace)
    assert ran.code == 0
    assert ran.err.endswith("trace.csv: read as 1946 requests in 19.95 s: 97.55 requests/s on the "
                            "mean\n")
    answer, policies = ran.out.splitlines()[:2]
    assert answer.startswith("bursts, negative-binomial:")
    assert policies.startswith("policies: --load 97.55 --arrivals negative-binomial:")
    assert Arrivals.parse(policies.split()[-1])(100.0).rate_per_ms == pytest.approx(0.1)
    for word in ("queries/s", "window (s)", "dispersion", "p-value", "poisson", "mmpp:ratio="):
        assert word in ran.out


def test_the_json_has_a_row_for_each_process_and_the_dispersions(run, trace):
    ran = run("arrivals", "fit", trace, "--time-column", "arrival_ms", "--json")
    found = json.loads(ran.out)
    assert found["best"] == found["rows"][0]["arrivals"]
    assert found["rows"][0]["bic_difference"] == 0.0
    assert len(found["rows"]) == 3
    assert len(found["window_ms"]) == len(found["dispersion"])
    assert found["rate_qps"] == pytest.approx(100.0, rel=0.1)
    assert found["gap_cv"] > 1.2


def test_the_figure_is_written(run, trace, tmp_path):
    pytest.importorskip("matplotlib")
    ran = run("arrivals", "fit", trace, "--plot", tmp_path / "fit.png")
    assert ran.code == 0
    assert (tmp_path / "fit.png").stat().st_size > 10_000
    refused(run("arrivals", "fit", trace, "--plot", tmp_path / "fit.doc"), 2, "kind of figure")


def moving(rng: np.random.Generator) -> FloatArray:
    """Poisson arrivals of 105 to 466 requests/s, in ms."""
    times = np.sort(rng.random(rng.poisson(470.0 * 60.0)) * 60_000.0)
    rate = 285.5 - 180.5 * np.cos(2 * np.pi * times / 60_000.0)
    return times[rng.random(len(times)) < rate / 470.0]


ANSWERS = {
    "constant rate": (lambda rng: 25.0 * np.arange(1200), "constant rate: 40 requests/s",
                      "--load 40 (those for Poisson arrivals are on the safe side)"),
    "Poisson": (lambda rng: np.cumsum(rng.exponential(25.0, 1500)), "Poisson: ", "--load "),
    "whole milliseconds": (lambda rng: np.floor(np.cumsum(rng.exponential(2.5, 4000))),
                           "Poisson: 410 requests/s", "--load 410"),
    "moving": (moving, "Poisson: 108.5 to 462.6 requests/s", "--load"),
    "even": (lambda rng: np.cumsum(rng.gamma(4.0, 25.0 / 4.0, 1500)),
             "more even than Poisson (coefficient of variation of the gaps 0.5", "--load 4"),
}


@pytest.mark.parametrize("shape", ANSWERS)
def test_the_answer_comes_first_with_a_command_that_works(run, tiny_file, tmp_path, shape):
    times, answer, policies = ANSWERS[shape]
    path = tmp_path / "trace.txt"
    path.write_text("".join(f"{t:.4f}\n" for t in times(np.random.default_rng(2))))
    ran = run("arrivals", "fit", path, "--unit", "ms")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith(answer)
    assert ("the load moves, use these levels" in lines[0]) == (shape == "moving")
    assert " ".join(lines[1:3]).replace("  ", " ").startswith(f"policies: {policies}")
    assert "departs" not in ran.err
    command = ran.out.partition("\n\n")[0].partition("  ramsis ")[2].replace("\\\n", " ")
    words = command.replace("PROFILE.json", str(tiny_file)).replace("MS", "100").split()
    planned = run(*words[:-1], tmp_path / "plan", "--dry-run")
    assert planned.code == 0, planned.err


def test_no_bursts_are_fitted_that_counts_do_not_tell():
    """Poisson arrivals and constant rates: no likelihood above 1, and no burst below a window."""
    rng = np.random.default_rng(0)
    for times in (25.0 * np.arange(600), np.cumsum(rng.exponential(25.0, 600))):
        found = fit_trace(times)
        assert found.best.word == "poisson"
        for fit in found.fits:
            assert fit.log_likelihood < 0.0
            assert getattr(fit.process, "burst_ms", 25.0) > 1.0


@pytest.mark.parametrize(("text", "options", "code", "words"), [
    ("1\n2\n1\n", ["--unit", "s"], 3, ("line 3", "goes back")),
    ("1\n2\n", ["--unit", "s"], 3, ("too few timestamps", "at least 100")),
    ("1\n2\n", [], 2, ("numbers need a unit", "--unit")),
])
def test_bad_traces_are_refused_in_one_line(run, tmp_path, text, options, code, words):
    path = tmp_path / "trace.txt"
    path.write_text(text)
    refused(run("arrivals", "fit", path, *options), code, *words)


def test_own_modules_are_found_in_the_current_folder_when_the_user_names_them(
    run, tiny_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_arrivals_here.py").write_text(OWN.replace("{module}", "my_arrivals_here"))
    name = "my_arrivals_here:Mine"
    made = run("generate", "--profiles", tiny_file, "--slo-ms", 100, "--workers", 4, "--load", 50,
               "--grid", "fixed:6", "--max-queue", 4, "--headroom", 0, "--out", "set",
               "--arrivals", name)
    assert made.code == 0, made.err
    refused(run("verify", "set"), 3, "not imported unless you name it", name)
    assert run("verify", "set", "--arrivals", name).code == 0
    refused(run("verify", "set", "--arrivals", "other_module:Mine"), 3, name)
