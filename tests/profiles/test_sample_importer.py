"""``ramsis profile import --confidences``: samples that models have answered."""

import json

import numpy as np
import pytest

from ramsis.profiles import Confidences, load, save
from ramsis.profiles.importers import import_profile, read_samples
from tests.cli.command import refused
from tests.profiles.samples import drawn_samples, samples_csv, write_sources

SAMPLES = drawn_samples(1000)
TEXT = samples_csv(SAMPLES)
HEADER, *ROWS = TEXT.splitlines(keepends=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a table, samples.csv and a profile of the table."""
    write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    save(import_profile("statistics.csv"), "profile.json")
    return tmp_path


def test_a_table_and_a_profile_get_the_confidences_of_samples(folder, run):
    for source in ("statistics.csv", "profile.json"):
        ran = run("profile", "import", source, "--confidences", "samples.csv", "--out", "out.json")
        assert ran.code == 0, ran.err
        assert ("note: confidences: 1000 samples, of which 500 choose and 500 state; models: 2, "
                "pairs: 1, bins: 20\n") in ran.err
        profile = load("out.json")
        assert profile.confidences == Confidences.of(
            SAMPLES, groups=np.arange(1000).astype(str), source="samples.csv").calibrated(
                {model.name: model.accuracy for model in profile.models})
        assert profile.models == load("profile.json").models
    assert profile.fingerprint == load("profile.json").fingerprint
    for command in ("show", "check"):
        shown = run("profile", command, "out.json").out
        assert "\nconfidences: 1000 samples, of which 500 choose" in shown
        assert "\nlargest gain: large on the least sure 20% of small adds 0." in shown
        assert "confidences" not in run("profile", command, "profile.json").out


def test_a_profile_file_takes_models_a_name_and_accuracies(folder, run):
    (folder / "other.json").write_text(json.dumps({"small": 0.69}))
    ran = run("profile", "import", "profile.json", "--confidences", "samples.csv", "--models",
              "small", "--name", "alone", "--accuracy", "other.json", "--out", "out.json")
    assert ran.code == 0, ran.err
    profile = load("out.json")
    assert (profile.name, [(item.name, item.accuracy) for item in profile.models]) == (
        "alone", [("small", 0.69)])
    assert profile.confidences.pairs == ()
    ran = run("profile", "import", "profile.json", "--confidences", "samples.csv", "--batch", "4",
              "--out", "out.json")
    refused(ran, 2, "a profile file states all that these options say")


def test_a_shipped_set_gets_the_confidences_of_samples(folder, run):
    names = {"small": "svm-poly-400", "large": "svm-poly-800"}
    text = HEADER + "".join(row.replace(name, names[name]) for row in ROWS
                            for name in names if name in row)
    (folder / "digits.csv").write_text(text)
    ran = run("profile", "import", "digits-cpu", "--confidences", "digits.csv", "--out", "o.json")
    assert ran.code == 3  # drawn for models of another accuracy
    assert "digits.csv: model svm-poly-400: accuracy on the samples contradicts" in ran.err


def test_samples_state_accuracies_that_nothing_else_does(folder):
    (folder / "plain.csv").write_text("model,batch,p95_ms\nsmall,1,5\nlarge,1,20\n")
    profile = import_profile("plain.csv", confidences="samples.csv")
    assert [item.accuracy for item in profile.models] == [
        float(SAMPLES[name][0].mean()) for name in ("small", "large")]


def test_the_order_of_rows_does_not_matter(folder):
    order = np.random.default_rng(0).permutation(len(ROWS))
    (folder / "shuffled.csv").write_text(HEADER + "".join(ROWS[i] for i in order))
    documents = [profile.confidences.to_document() for name in ("samples.csv", "shuffled.csv")
                 if (profile := import_profile("profile.json", confidences=name)).confidences]
    assert {**documents[1], "source": "samples.csv"} == documents[0]


def test_copies_in_a_file_are_groups(tmp_path):
    grouped = [row.rstrip() + f",{int(row.partition(',')[0]) // 10}\n" for row in ROWS]
    (tmp_path / "c.csv").write_text(HEADER.rstrip() + ",group\n" + "".join(grouped))
    copies = read_samples(tmp_path / "c.csv")
    assert len(set(copies.groups.tolist())) == 100
    assert Confidences.of(copies.samples, groups=copies.groups).items == 100


BAD = {
    "a model lacks a sample": (
        TEXT.replace(ROWS[7], ""), "no row of model small for sample 7; allowed: a row of every "
        "model for each sample (this one lacks 1 of 1000)"),
    "twice": (TEXT + ROWS[7], "line 2002, sample: sample 7 of model small appears twice"),
    "not right, not wrong": (
        TEXT.replace(ROWS[7], "7,small,0.5,1.0\n"), "line 9, correct: neither right nor wrong: "
        "got '0.5'; allowed: 1 or 0"),
    "not a number": (TEXT.replace(ROWS[7], "7,small,1,nan\n"),
                     "line 9, confidence: not finite: got nan; allowed: a finite number"),
    "no confidence": (TEXT.replace(ROWS[7], "7,small,1,\n"), "line 9, confidence: cell is empty"),
    "no group": (HEADER.rstrip() + ",group\n7,small,1,0.5,\n", "line 2, group: cell is empty"),
    "two groups": (HEADER.rstrip() + ",group\n7,small,1,0.5,a\n7,large,1,0.5,b\n",
                   "line 3, group: sample 7 is of group a in another row: got 'b'"),
    "unknown column": (TEXT.replace("confidence", "score"), "header: unknown column"),
    "missing column": (TEXT.replace(",confidence", ""), "header: missing column: got 'confidenc"),
    "unknown model": (TEXT.replace("large", "larger"), "model: no such model in profile set "
                      "'statistics': got 'larger'; allowed: large"),
    "too few": (
        samples_csv(drawn_samples(150)), "samples: too few samples to choose thresholds by one "
        "part and state them by the other: got 150; allowed: 200 or more samples (1000 for 20"),
    "constant": (HEADER + "".join(row.rpartition(",")[0] + ",0.5\n" for row in ROWS),
                 "model small, confidence: equally sure of all samples"),
    "other accuracy": (HEADER + "".join(row.replace(",0,", ",1,") for row in ROWS),
                       "model small: accuracy on the samples contradicts that of the profile: got "
                       "1.0; allowed: 0.7025 ± 0.1: samples of the same task"),
    "nothing": ("", "file is empty"),
    "no rows": (HEADER, "no rows below the header"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_samples_are_refused_in_one_line(folder, run, name):
    text, message = BAD[name]
    (folder / "bad.csv").write_text(text)
    ran = run("profile", "import", "profile.json", "--confidences", "bad.csv", "--out", "out.json")
    refused(ran, 3, "bad.csv: ", message)
    assert not (folder / "out.json").exists()


def test_a_profile_file_alone_is_no_source(folder, run):
    ran = run("profile", "import", "profile.json", "--out", "out.json")
    refused(ran, 3, "is a file of ramsis already", "or gets --confidences SAMPLES.csv")
