"""Worker types and SLO classes on the command line."""


import pytest

from ramsis.profiles import save
from tests.cli.command import refused, snapshot
from tests.synthesis.samples import linear_profile


@pytest.fixture(scope="module")
def files(tiny_file, tmp_path_factory):
    fast = tmp_path_factory.mktemp("fast") / "fast.json"
    save(linear_profile((0.7, 2.0, 1.0), (0.85, 6.0, 3.0), (0.92, 12.0, 9.0)), fast)
    return f"old={tiny_file},new={fast}"


MIX = ("--slo-ms", "60:0.3,100:0.7", "--workers", "old=16,new=18", "--load", 1500)


@pytest.mark.slow
def test_from_the_options_to_the_simulated_mix(run, files, tmp_path):
    out = tmp_path / "mix"
    terms = ("--profiles", files, *MIX)
    ran = run("generate", *terms, "--dispatch", "central-queue", "--grid", "fixed:8",
              "--max-queue", 4, "--out", out, "--json")
    (row,) = ran.rows
    assert row["worker_types"] == {"old": 16, "new": 18}
    assert row["slo_classes"] == [{"slo_ms": 60.0, "share": 0.3}, {"slo_ms": 100.0, "share": 0.7}]
    assert row["expected_effective_accuracy"] <= row["upper_bound"] + 1e-9
    assert max(row["shared_effective_accuracy"], row["apart_effective_accuracy"]) > 0
    assert sum(part["load_qps"] for part in row["parts"]) == pytest.approx(1500.0)
    assert len(list(out.rglob("central-queue-*qps.json"))) == len(row["parts"])
    assert run("validate", out).out.strip().endswith(
        "for 1500 to 1500 QPS, 2 worker types and 2 SLO classes")
    assert run("validate", out / "manifest.json").code == 0
    checked = run("verify", out, "--all", "--json")
    assert checked.code == 0
    several = len(row["parts"]) > 1
    of_the_set = [one["claim"] for one in checked.rows if one["file"].endswith("manifest.json")]
    assert any(claim.startswith("workers of ") for claim in of_the_set)
    assert any(claim.startswith("upper bound ") for claim in of_the_set) == several
    limit = run("bound", *terms, "--max-batch", 4, "--json").rows[0]
    assert limit["upper_bound"] == pytest.approx(row["upper_bound"], abs=1e-9)
    assert sum(one["share"] for one in limit["types"]) <= 1 + 1e-9
    ran = run("simulate", *terms, "--policy", out, "--duration-s", 5, "--seeds", 2, "--json")
    (done,) = ran.rows
    assert done["effective_accuracy"] == pytest.approx(row["expected_effective_accuracy"],
                                                       abs=0.02)
    assert done["effective_accuracy"] <= done["upper_bound"] + 0.01
    before = snapshot(out)
    refused(run("generate", *terms, "--dispatch", "central-queue", "--out", out), 2, "--overwrite")
    refused(run("simulate", "--profiles", files, "--slo-ms", "60:0.4,100:0.6", *MIX[2:],
                "--policy", out), 3, "made for other SLO classes")
    found = run("simulate", *terms[:-2], "--policy", out, "--scheduler", "greedy",
                "--scheduler",
                "jellyfish-plus", "--trace", "day", "--scale", 0.5, "--duration-s", 2,
                "--network-ms", 1, "--csv", tmp_path / "rows.csv", "--timeline",
                tmp_path / "t.json", "--json").rows
    assert [one["label"] for one in found] == [f"central-queue {out}", "greedy", "jellyfish-plus"]
    assert {one["queries"] for one in found} == {found[0]["queries"]}
    for one in found:
        assert one["monitor"] is True
        assert one["worker_types"] == {"old": 16, "new": 18}
        assert one["effective_accuracy"] <= one["upper_bound"] + 0.01
        assert one["queries"] == (one["in_time"] + one["late"] + one["dropped"]
                                  + one["never_answered"])
    assert (tmp_path / "rows.csv").stat().st_size > 0
    told = run("simulate", *terms, "--policy", out, "--duration-s", 1, "--told", 0.5, "--arrivals",
               "negative-binomial:2", "--service", "distribution", "--json")
    assert told.rows[0]["service"] == "distribution"
    assert "is above the highest level" in run(
        "simulate", *terms[:-1], 1600, "--policy", out, "--duration-s", 1).err
    refused(run("generate", "--profiles", files.split("=")[-1], "--slo-ms", 60, "--workers", 2,
                "--load", 10, "--out", out), 2, "another profile or other settings",
            "--overwrite")
    analysed = run("analyze", out, "--json").rows
    assert [one["load_qps"] for one in analysed] == [part["load_qps"] for part in row["parts"]]
    assert snapshot(out) == before


def test_equal_types_and_classes_print_the_bound_of_one(run, tiny_file):
    load = ("--load", 2500, "--json")
    one = run("bound", "--profiles", tiny_file, "--slo-ms", 100, "--workers", 8, *load)
    two = run("bound", "--profiles", tiny_file, "--slo-ms", "100:0.5,100:0.5", "--workers",
              "a=3,b=5", *load)
    assert two.rows[0]["upper_bound"] == pytest.approx(one.rows[0]["upper_bound"], abs=1e-9)


@pytest.mark.parametrize(("options", "code", "words"), [
    ({"--slo-ms": "60:0.3,100:0.6"}, 2, ("do not sum to 1", "0.9")),
    ({"--slo-ms": "1:0.3,100:0.7"}, 4, ("got 1.0", "at least 2 ms")),
    ({"--workers": "old=2,tpu=3"}, 2, ("unknown worker type", "tpu")),
    ({"--workers": "old=2"}, 2, ("unknown worker type", "new")),
    ({"--workers": "old=2,new=0"}, 2, ("--workers: new", "whole number from 1 to")),
    ({"--workers": "5"}, 2, ("--workers", "old=N,new=N")),
    ({"--arrivals": "renewal:4", "--dispatch": "round-robin"}, 2,
     ("--arrivals", "not split at random", "'Renewal'")),
])
def test_contradictions_get_one_line_and_no_file(run, files, tmp_path, options, code, words):
    given = {"--profiles": files, "--slo-ms": "60:0.3,100:0.7", "--workers": "old=16,new=18",
             "--load": "300", "--dispatch": "central-queue",
             "--out": str(tmp_path / "mix"), **options}
    refused(run("generate", *(word for pair in given.items() for word in pair)), code, *words)
    assert not (tmp_path / "mix").exists()
