"""``ramsis analyze``: a row for each policy, from files and folders."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from ramsis.policy import read, read_set
from ramsis.synthesis import generate_set
from tests.cli.command import refused
from tests.synthesis import samples

SETTINGS = samples.settings(grid="fixed:6", max_queue=4)


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """A set of three loads, the last above capacity."""
    folder = tmp_path_factory.mktemp("set")
    generate_set(tiny, (50.0, 900.0, 9000.0), SETTINGS, folder)
    return folder


def test_a_folder_gives_a_row_for_each_policy(run, folder):
    ran = run("analyze", folder, "--wide")
    assert (ran.code, ran.err) == (0, "")
    header, *rows, last = ran.out.splitlines()
    assert last == "certified gap: price of a violation 1, headroom 0"
    for title in ("load (QPS)", "accuracy", "violations", "upper bound", "batch p50/p99",
                  "queue p50/p99", "slack p50 (ms)", "most used model", "certificate"):
        assert title in header
    for row, policy in zip(rows, [level.policy for level in read_set(folder).levels], strict=True):
        expected, cells = policy.expectations, row.split()
        assert float(cells[0]) == policy.load_qps
        assert cells[3] == f"{expected.effective_accuracy:.4f}"
        assert f"{expected.batch_size.p50:g}/{expected.batch_size.p99:g}" in cells
        name, share = max(expected.model_share.items(), key=lambda item: item[1])
        assert f"{name} ({share:.0%})" in row
        assert "policy-iteration, gap " in row
        assert cells[-1] == ("OVERLOAD" if expected.overloaded else "ok")


def test_files_and_folders_mix_in_the_order_given(run, folder):
    one = folder / "round-robin-00900qps.json"
    document = json.loads(run("analyze", one, folder, one, "--json").out)
    assert [row["load_qps"] for row in document["rows"]] == [900.0, 50.0, 900.0, 9000.0, 900.0]


def test_the_certified_gap_is_that_of_the_promise_at_the_price_of_the_policy(run, folder):
    rows = run("analyze", folder, "--json").rows
    assert [row["violation_price"] for row in rows] == [1.0, 1.0, 1.0]
    for row in rows[:2]:
        value = row["expected_effective_accuracy"] - row["expected_violation_rate"]
        assert row["certified_gap"] == pytest.approx(1.0 - value / row["priced_upper_bound"])
        assert -1e-12 <= row["certified_gap"] < 0.2
    assert rows[2]["priced_upper_bound"] < 0.0  # most requests are late
    assert rows[2]["certified_gap"] is None


def test_json_rows_hold_expectations_quantiles_and_certificate(run, folder):
    path = folder / "round-robin-00900qps.json"
    (row,) = run("analyze", path, "--json").rows
    policy = read(path)
    expected = policy.expectations
    assert (row["scheduler"], row["workers"], row["slo_ms"], row["objective"]) == (
        "round-robin", 4, 100.0, "per-query")
    for key in ("accuracy", "violation_rate", "effective_accuracy"):
        assert row[f"expected_{key}"] == getattr(expected, key)
    assert row["upper_bound"] == expected.upper_bound
    for key in ("batch_size", "queue_length", "slack_ms"):
        spread = getattr(expected, key)
        assert row[key] == {"mean": spread.mean, "p50": spread.p50, "p99": spread.p99}
    assert row["model_share"] == expected.model_share
    served = np.sort(np.repeat(
        [model.accuracy for model in policy.models],
        [round(1e5 * expected.model_share.get(model.name, 0.0)) for model in policy.models]))
    for name, level in (("p01", 0.01), ("p50", 0.5), ("p99", 0.99)):
        assert row["request_accuracy"][name] == served[math.ceil(level * len(served)) - 1]
        assert row["request_late"][name] == (expected.violation_rate > 1.0 - level)
    assert row["certificate"]["gain_upper"] == policy.certificate.gain_upper
    assert row["certificate"]["converged"] is True


def test_a_file_that_names_no_share_of_models_still_prints(run, folder, tmp_path):
    document = json.loads((folder / "round-robin-00050qps.json").read_text())
    document["expectations"]["model_share"] = {}
    (tmp_path / "policy.json").write_text(json.dumps(document))
    ran = run("analyze", tmp_path / "policy.json", "--wide")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 3
    assert "–/–/–" in ran.out


def test_a_figure_is_drawn_beside_the_table(run, folder, tmp_path):
    pytest.importorskip("matplotlib")
    ran = run("analyze", folder, "--plot", tmp_path / "promises.svg")
    assert ran.code == 0
    assert len(ran.out.splitlines()) == 5
    assert "<svg" in (tmp_path / "promises.svg").read_text()
    refused(run("analyze", folder, "--plot", tmp_path / "promises.txt"), 2, "plot",
            "promises.txt", ".png")


@pytest.mark.parametrize("command", [["analyze"], ["verify"], ["policy", "show"]], ids=str)
def test_a_bad_policy_file_gets_one_line(run, folder, tmp_path, command):
    document = json.loads((folder / "round-robin-00900qps.json").read_text())
    document["expectations"]["accuracy"] = 1.5
    (tmp_path / "policy.json").write_text(json.dumps(document))
    refused(run(*command, tmp_path / "policy.json"), 3, "policy.json: expectations.accuracy",
            "got 1.5", "[0, 1]")
    refused(run(*command, tmp_path / "none.json"), 3, "none.json", "No such file")


@pytest.mark.parametrize("command", ["analyze", "verify"])
def test_a_folder_without_a_manifest_gets_one_line(run, tmp_path, command):
    refused(run(command, tmp_path), 3, str(tmp_path), "manifest.json", "allowed: ")


def test_a_set_that_was_changed_by_hand_is_refused(run, tiny, tmp_path):
    generate_set(tiny, (50.0,), SETTINGS, tmp_path)
    path = tmp_path / "round-robin-00050qps.json"
    path.write_text(path.read_text().replace('"tiny"', '"mine"'))
    refused(run("analyze", tmp_path), 3, "fingerprint", "round-robin-00050qps.json has changed")
    path.unlink()
    refused(run("analyze", tmp_path), 3, "round-robin-00050qps.json", "missing")


SERVER = (Path(__file__).parents[1] / "profiles/tool_files/loadgen/Server.txt").read_text()


def loadgen(file: Path, load_qps: float, slo_ms: float, latency_ms: Mapping[str, float]) -> Path:
    """The summary of loadgen's with other figures."""
    text = re.sub(r"(Scheduled samples per second :) .*", rf"\1 {load_qps}", SERVER)
    text = re.sub(r"(target_latency \(ns\):) .*", rf"\1 {slo_ms * 1e6:.0f}", text)
    for label, value in latency_ms.items():
        text = re.sub(rf"({label}[^:]*\(ns\) *:) .*", rf"\1 {value * 1e6:.0f}", text)
    file.write_text(text)
    return file


def test_a_promise_is_held_against_a_run_of_loadgen(run, folder, tmp_path):
    policies = [item.policy for item in read_set(folder).levels[0].stations]
    slo_ms, load_qps = policies[0].slo_ms, policies[0].load_qps
    levels = ("Max", "50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
    quick = dict.fromkeys(levels, slo_ms / 10)
    file = loadgen(tmp_path / "s.txt", load_qps - 1, slo_ms, quick)
    ran = run("analyze", folder, "--loadgen", file)
    assert ran.code == 0, ran.err
    assert f"288 queries at {load_qps - 1:g} QPS, 0.00% later than {slo_ms:g} ms" in ran.out
    assert f"the policy for {load_qps:g} QPS promises" in " ".join(ran.out.split())
    assert ran.out.rstrip().endswith(": kept")

    late = quick | dict.fromkeys(("Max", "95.00", "97.00", "99.00", "99.90"), 2 * slo_ms)
    ran = run("analyze", folder, "--json", "--loadgen",
              loadgen(tmp_path / "s.txt", load_qps - 1, slo_ms, late))
    assert ran.code == 6
    assert ran.err.startswith("error: the promise was not kept in this run: measure the profile")
    held = json.loads(ran.out)["loadgen"]
    assert (held["run"]["late_low"], held["run"]["late_high"]) == pytest.approx((0.05, 0.1))
    assert held["run"]["queries"] == 288
    # 15 of 288 were late at least: 14.4 are 5 %.
    promised = held["promised"]
    assert held["probability"] == pytest.approx(
        1.0 - sum(math.comb(288, k) * promised**k * (1 - promised) ** (288 - k)
                  for k in range(15)), abs=1e-12)


def test_runs_that_fit_no_policy_are_refused(run, folder, tmp_path):
    slo_ms = read_set(folder).levels[0].stations[0].policy.slo_ms
    for load_qps, slo, words in ((1.0, 3.0, "for the run's target latency"),
                                 (1e6, slo_ms, "a load as high as the run's")):
        file = loadgen(tmp_path / "s.txt", load_qps, slo, {})
        refused(run("analyze", folder, "--loadgen", file), 2, "--loadgen", words)
    for name in ("SingleStream", "Offline"):
        file = Path(__file__).parents[1] / f"profiles/tool_files/loadgen/{name}.txt"
        refused(run("analyze", folder, "--loadgen", file), 3, "not a summary of loadgen's Server")
    (tmp_path / "s.txt").write_text("hello: 3\n")
    refused(run("analyze", folder, "--loadgen", tmp_path / "s.txt"), 3, "not a summary")
