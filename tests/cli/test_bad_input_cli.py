"""Odd words and files: one line, the documented exit code, nothing written, bounded work."""

import time

import pytest

from tests.cli.command import refused

GENERATE = ["generate", "--profiles", "digits-cpu", "--slo-ms", "25", "--load", "400"]
SIMULATE = ["simulate", "--profiles", "digits-cpu", "--slo-ms", "25", "--load", "400",
            "--duration-s", "1", "--scheduler", "jellyfish-plus"]


@pytest.mark.parametrize(("arguments", "code", "words"), [
    ([*GENERATE, "--workers", "4", "--out", ""], 2, ["--out", "folder"]),
    ([*GENERATE, "--workers", "1" + "0" * 26, "--out", "o"], 2, ["workers"]),
    ([*GENERATE[:-1], "400:800:400", "--workers", "4", "--max-accuracy-step", "1e-9",
      "--out", "o"], 2, ["--max-accuracy-step", "0.0005"]),
    ([*SIMULATE, "--workers", "4", "--seeds", "1000000000"], 2, ["--seeds", "100000"]),
    ([*SIMULATE, "--workers", "4", "--arrivals", "renewal:1e308"], 2, ["renewal", "1000"]),
    (["profile", "import", "/dev/zero", "--format", "long-csv", "--out", "o"], 3,
     ["too large"]),
    (["profile", "check", "caf\udce9.json"], 3, ["no such profile"]),
])
def test_odd_words_are_refused_at_once(run, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.chdir(tmp_path)
    refused(run(*arguments), code, *words)
    assert not list(tmp_path.iterdir())


def test_a_damaged_specification_of_a_sweep_is_refused(run, tmp_path):
    (tmp_path / "spec.toml").write_text("a = " + "[" * 3000 + "]" * 3000)
    refused(run("sweep", tmp_path / "spec.toml", "--out", tmp_path / "out"), 3, "not valid TOML")
    assert not (tmp_path / "out").exists()


def test_a_long_damaged_line_is_refused_at_once(run, tmp_path):
    (tmp_path / "profile.json").write_text("[" * 100_000)
    started = time.process_time()
    refused(run("bound", "--profiles", tmp_path / "profile.json", "--slo-ms", 100, "--workers", 1,
                "--load", 10), 3, "not valid JSON")
    assert time.process_time() - started < 10  # a minute where each bracket is a new beginning


def test_a_specification_has_no_module_imported(run, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "spec.toml").write_text(
        'profiles = "digits-cpu"\nworkers = 4\nslo_ms = 25\nload_qps = 400\n'
        'scheduler = "jellyfish-plus"\narrivals = ["poisson", "mine:process"]\n')
    refused(run("sweep", tmp_path / "spec.toml", "--out", tmp_path / "out"), 3,
            "--arrivals mine:process")


def test_a_file_is_not_imported_onto_itself(run, tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text("model,batch,latency_ms,accuracy\na,1,10,0.9\na,1,11,0.9\n")
    before = path.read_bytes()
    refused(run("profile", "import", path, "--format", "long-csv", "--out", path), 2,
            "another file")
    assert path.read_bytes() == before
