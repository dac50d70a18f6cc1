"""``ramsis generate``: what it prints, what it writes, and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ramsis.policy import read, validate_set
from ramsis.synthesis import long_batches
from tests.cli.command import Ran, refused, snapshot

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"--slo-ms": "100", "--workers": "4", "--load": "50", "--grid": "fixed:6",
         "--max-queue": "4"}


def options(profile: Path, folder: Path, **changes: str | None) -> list[str]:
    """The command's options, some changed; ``None`` leaves one out."""
    chosen: dict[str, str | None] = {"--profiles": str(profile), "--out": str(folder), **SMALL}
    chosen |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return [word for name, value in chosen.items() if value is not None for word in (name, value)]


def test_a_level_has_policies_for_each_slowness(run, tiny_file, tmp_path):
    folder = tmp_path / "out"
    words = options(tiny_file, folder, load="50,80", slowness="1,1.5")
    rows = run("generate", *words, "--json").rows
    assert [(row["load_qps"], row["slowness"]) for row in rows] == [
        (50, 1), (80, 1), (50, 1.5), (80, 1.5)]
    assert rows[3]["file"] == str(folder / "round-robin-00080qps-slowness-1_5.json")
    assert rows[3]["expected_effective_accuracy"] < rows[1]["expected_effective_accuracy"]
    assert read(rows[3]["file"]).slowness == 1.5
    assert len(validate_set(folder).levels) == 4
    assert "slowness" in run("analyze", str(folder)).out
    once = run("simulate", "--profiles", str(tiny_file), "--slo-ms", "100", "--workers",
               "4", "--load", "80", "--policy", str(folder), "--slowness", "1.5",
               "--json").rows[0]
    assert (once["slowness"], once["told_slowness"]) == (1.5, 1.5)
    assert once["expected_effective_accuracy"] == rows[3]["expected_effective_accuracy"]


@pytest.mark.parametrize(("slowness", "message"), [
    ("1,0", "not positive"), ("1,x", "not positive"), ("1,1.0", "a number stands twice"),
    ("", "not positive"), ("inf", "not positive")])
def test_a_slowness_that_is_none_is_refused(run, tiny_file, tmp_path, slowness, message):
    ran = run("generate", *options(tiny_file, tmp_path / "out", slowness=slowness))
    refused(ran, 2, message)
    ran = run("generate", *options(tiny_file, tmp_path / "out", slowness="1,1.2", headroom="0.01"))
    refused(ran, 2, "without headroom")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def generate(run, tiny_file, tmp_path):
    """Runs the command on the tiny profile into ``tmp_path / "out"``, some options changed."""

    def call(*flags: str, **changes: str | None) -> Ran:
        return run("generate", *options(tiny_file, tmp_path / "out", **changes), *flags)

    return call


def test_the_last_line_counts_all_that_the_folder_holds(generate, tmp_path):
    def last_line(load: str) -> str:
        return str(generate("--wide", "--headroom", "0", load=load).out.splitlines()[-1])

    listed = f"in {tmp_path / 'out'} (manifest.json lists them)"
    assert last_line("20,50") == f"2 policies {listed}"
    assert last_line("30") == f"3 policies {listed}, 1 of them made now"
    assert last_line("20,50,30") == f"3 policies {listed}"


def test_no_number_is_cut_on_a_narrow_terminal(generate, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    ran = generate(load="1234.5")
    assert "…" not in ran.out
    assert "1234.5" in ran.out


def test_json_is_one_document_of_rows_in_the_agreed_names(generate, tmp_path):
    ran = generate("--json", load="50,9000")
    assert ran.code == 0
    assert ran.err.startswith("note: 9000 QPS: OVERLOAD")
    document = json.loads(ran.out)
    assert set(document) == {"created_by", "command", "rows"}
    assert document["command"].startswith("ramsis generate --profiles")
    low, high = document["rows"]
    assert set(low) >= {"scheduler", "load_qps", "workers", "slo_ms", "expected_accuracy",
                        "expected_violation_rate", "expected_effective_accuracy", "upper_bound",
                        "capacity_qps", "utilisation", "overloaded", "headroom_factor",
                        "slower_effective_accuracy", "slower_violation_rate", "file"}
    assert (low["scheduler"], low["load_qps"], low["workers"], low["slo_ms"]) == (
        "round-robin", 50.0, 4, 100.0)
    assert (low["overloaded"], high["overloaded"]) == (False, True)
    for row in (low, high):
        expected = read(row["file"]).expectations
        assert row["expected_effective_accuracy"] == expected.effective_accuracy
        assert row["expected_violation_rate"] == expected.violation_rate
        assert row["upper_bound"] == expected.upper_bound


def test_a_longer_queue_that_a_note_names_brings_more_accurate_answers(run, tmp_path):
    asked = ["generate", "--profiles", "digits-cpu", "--slo-ms", 60, "--workers", 2, "--load",
             3000, "--json"]
    made = run(*asked, "--out", tmp_path / "short")
    (note,) = re.findall(r"batches of 38, which --max-queue 32 rules out; try (--max-queue 64)\n",
                         made.err)
    longer = run(*asked, *note.split(), "--out", tmp_path / "long")
    assert "note" not in longer.err
    before, after = (json.loads(ran.out)["rows"][0]["expected_effective_accuracy"]
                     for ran in (made, longer))
    assert (round(before, 4), round(after, 4)) == (0.9369, 0.9550)


def test_a_note_names_no_queue_that_the_option_refuses(run, tmp_path, monkeypatch):
    monkeypatch.setattr(long_batches, "MAX_QUEUE", 40)
    made = run("generate", "--profiles", "digits-cpu", "--slo-ms", 60, "--workers", 2, "--load",
               3000, "--out", tmp_path / "out")
    assert made.err.endswith("rules out; try --max-queue 40\n")


def test_a_central_queue_of_any_length_needs_no_longer_one(run, tiny_file, tmp_path):
    made = run("generate", "--profiles", tiny_file, "--slo-ms", 30_000, "--workers", 2, "--load",
               900, "--dispatch", "central-queue", "--out", tmp_path / "out")
    assert made.code == 0, made.err
    assert "rules out" not in made.err


def test_one_load_leaves_no_levels_to_choose(generate, tmp_path):
    refused(generate(load="50", max_accuracy_step="0.05"), 2, "load: not a range of loads")
    assert not (tmp_path / "out").exists()


def test_the_same_command_writes_the_same_bytes(generate, tmp_path):
    first = generate(load="50,100", headroom="0")
    before = snapshot(tmp_path)
    assert (generate(load="50,100", headroom="0"), snapshot(tmp_path)) == (first, before)
    assert len(before) == 1 + 3
    # In other words: only the manifest says so.
    assert generate(load="100,50", headroom="0") == first
    after = snapshot(tmp_path)
    changed = [name for name, held in after.items() if held != before[name]]
    assert [Path(name).name for name in changed] == ["manifest.json"]


def test_another_set_is_refused_unless_it_may_be_replaced(generate, tmp_path):
    generate(headroom="0")
    before = snapshot(tmp_path)
    refused(generate(workers="5", headroom="0"), 2, str(tmp_path / "out"), "other settings",
            "--overwrite")
    assert snapshot(tmp_path) == before
    assert generate("--overwrite", workers="5", load="60", headroom="0").code == 0
    assert [level.policy.workers for level in validate_set(tmp_path / "out").levels] == [5]


@pytest.mark.parametrize(("changes", "code", "words"), [
    ({"load": "50,1e300"}, 2, ("too large", "arrivals", "a lower load")),
    ({"workers": "1000000000"}, 2, ("workers", "got 1000000000", "to 10000000")),
    ({"max_queue": "0"}, 2, ("--max-queue", "got 0", "allowed: ", "from 1")),
    ({"slo_ms": "3.9"}, 4, ("--slo-ms", "got 3.9", "below every latency", "at least 4 ms")),
    ({"slo_ms": "1e12"}, 2, ("too large", "a lower load")),
    ({"slo_ms": "1e300"}, 2, ("--slo-ms", "up to 1e+12 ms")),
    ({"arrivals": "mmpp:ratio=4,burst-ms=1e9,share=0.2"}, 2,
     ("mmpp", "burst-ms / share", "5e+06 s", "make policies for both loads")),
    ({"dispatch": "central-queue", "arrivals": "tests.synthesis.samples:OwnPoisson"}, 2,
     ("arrivals", "OwnPoisson", "cannot be drawn")),
    ({"arrivals": "trace:no-such.csv"}, 3, ("no-such.csv",)),
    ({"arrivals": "trace:spikes"}, 2, ("arrivals", "spikes", "loads", "--load")),
    ({"arrivals": "no_such_module:x"}, 2, ("arrivals", "'no_such_module:x'", "MODULE:NAME")),
    ({"out": None}, 2, ("--out",)),
], ids=str)
def test_bad_options_get_one_line_and_no_file(generate, tmp_path, changes, code, words):
    refused(generate(**changes), code, *words)
    assert snapshot(tmp_path) == {}


def test_one_word_is_what_the_paper_does(generate, tmp_path):
    assert generate("--paper", load="60", grid=None).code == 0
    assert generate(load="60", objective="per-decision", late="serve", violation_price="0",
                    grid="fixed:100", service="p95", out=str(tmp_path / "words")).code == 0
    one, other = (next(folder.glob("round-robin-*.json")).read_bytes()
                  for folder in (tmp_path / "out", tmp_path / "words"))
    assert one == other
    before = snapshot(tmp_path)
    refused(generate("--paper", grid=None, late="drop"), 2, "late", "not what the paper does")
    refused(generate("--paper", grid=None, dispatch="central-queue"), 2, "objective", "per-query")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("below", [".", "below"])
def test_an_unwritable_folder_is_named(run, tiny_file, tmp_path, below):
    (tmp_path / "file").write_text("mine")
    refused(run("generate", *options(tiny_file, tmp_path / "file" / below)), 2,
            str(tmp_path / "file"), "cannot make the folder" if below == "below" else "is a file")
    assert snapshot(tmp_path) == {str(tmp_path / "file"): b"mine"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_real_interrupt_leaves_finished_files_and_no_others(tiny_file, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ramsis", "generate",
               *options(tiny_file, out, load="1:4000:1")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while len(list(out.glob("round-robin-*.json"))) < 5 and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (130, "")
    assert stderr.strip() == "interrupted; finished files are whole and stay"
    made = [level.load_qps for level in validate_set(out).levels]
    assert made == [float(load) for load in range(1, len(made) + 1)]
    assert 4 <= len(made) < 4000  # the fifth may not be listed yet
    others = {path.name for path in out.iterdir()} - {"manifest.json"}
    assert {f"round-robin-{int(load):05d}qps.json" for load in made} <= others
    assert len(others) <= len(made) + 1  # one may have been written, but not yet listed
    for name in others:
        read(out / name)


@pytest.mark.slow
def test_variable_batching_from_file_to_simulation(generate, run, tiny_file, tmp_path):
    assert generate(load="400", batching="variable", grid="fixed:40", max_queue="8").code == 0
    file = tmp_path / "out" / "round-robin-00400qps.json"
    policy = read(file)
    assert policy.batching == "variable"
    assert (policy.model_and_batch()[1][0] < [[n] for n in range(1, 9)]).any()
    assert run("verify", str(file)).code == 0
    shown = run("policy", "show", str(file))
    assert "variable batching" in shown.out
    assert "batch of each queue" in shown.out
    assert run("analyze", str(file)).code == 0
    (row,) = run("simulate", "--profiles", str(tiny_file), "--policy", str(file), "--workers",
                 "4", "--slo-ms", "100", "--load", "400", "--duration-s", "50", "--json").rows
    assert row["effective_accuracy"] == pytest.approx(
        policy.expectations.effective_accuracy, abs=0.02)


def test_variable_batching_and_other_arrivals_go_together(generate):
    assert generate(batching="variable", arrivals="negative-binomial:4", headroom="0").code == 0
