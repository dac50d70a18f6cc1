"""``scripts/tables.py``: tables from rows, on pages that have their marks."""

import json
import subprocess
from pathlib import Path

import pytest
import tables

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", [name for name, table in tables.TABLES.items() if table.page])
def test_each_page_has_the_marks_of_its_tables_once(name):
    page = (DOCS / tables.TABLES[name].page).read_text("utf-8")
    before, _, rest = page.partition(f"<!-- {name}:begin -->")
    table, _, after = rest.partition(f"<!-- {name}:end -->")
    assert table.strip().startswith("|")
    assert f"<!-- {name}:" not in before + after


def test_printed_totals_stand_above_simulated_ones_with_the_difference():
    rows = [{"table": table, "scheduler": name, "simulated_s": 11.0,
             **({} if name == "dynamic" else {"printed_s": printed})}
            for table in ("6.1", "6.2", "6.3")
            for name, printed in (("colocation", 10.0), ("colocation-queue", 12.5),
                                  ("registry", 11.0), ("dynamic", 0.0))]
    lines = tables.totals(rows).splitlines()
    assert len(lines) == 2 + 6
    assert lines[2] == "| table 6.1, printed | **10.00** | 12.50 | 11.00 | |"
    assert lines[3] == "| simulated | 11.00 (+10.0 %) | 11.00 (-12.0 %) | 11.00 (+0.0 %) | 11.00 |"


def test_the_goodput_of_each_policy_stands_beside_the_bound():
    rows = [{"policy": policy, "slo_ms": 150.0, "rps": rps, "models": ["a", "b"], "gpus": 4,
             "simulated_goodput_rps": goodput, "bound_rps": 2.0 * rps}
            for rps in (100.0, 200.0)
            for policy, goodput in (("usher", 120.0), ("igniter", 0.9 * rps),
                                    ("queue-aware", 1.5 * rps))]
    lines = tables.sharing("slo_ms", "load")(rows).splitlines()
    assert lines[0] == ("| SLO (ms) | load | `usher` | `igniter` | `queue-aware` | upper bound |")
    assert lines[2:] == ["| 150 | 200 | 120.0 | 90.0 | 150.0 | 200.0 |",
                         "| 150 | 400 | 120.0 | 180.0 | 300.0 | 400.0 |"]


def test_random_mixes_are_compared_at_both_latencies():
    rows = [{"policy": policy, "models": ["a"], "rps": rps, "slo_ms": 100.0, "gpus": 2,
             "simulated_goodput_rps": share * rps, "bound_rps": rps,
             "slower_simulated_goodput_rps": share * rps / 2, "slower_bound_rps": rps / 2}
            for rps, shares in ((100.0, (0.5, 0.4, 0.9)), (200.0, (0.8, 0.7, 0.8)))
            for policy, share in zip(("usher", "igniter", "queue-aware"), shares, strict=True)]
    assert tables.sharing_random(rows).splitlines()[2:] == [
        "| the profile's | 1.000 | 0.850 |", "| 10 % longer | 1.000 | 0.850 |"]


def _kept(name: str) -> dict[tuple[int, str], float]:
    """Goodput by GPUs and policy in the kept rows of a table."""
    rows = json.loads(tables.kept_file(name).read_text("utf-8"))["rows"]
    return {(row["gpus"], row["policy"]): row["simulated_goodput_rps"] for row in rows}


def test_kept_rows_show_what_the_thesis_on_sharing_observes():
    vision, mix = _kept("vision-gpus"), _kept("language-gpus")
    assert vision[3, "usher"] < 1.02 * vision[2, "usher"] < 0.8 * vision[4, "usher"]
    assert vision[6, "usher"] == pytest.approx(2500, rel=1e-3)
    assert all(vision[n, "ao-milp"] > 1.3 * vision[n, "usher"] for n in (3, 4))
    assert vision[6, "igniter"] < 0.5 * 2500
    for figures in (vision, mix):
        assert figures[8, "wao-usher"] <= figures[2, "wao-usher"]
    assert mix[5, "wsm-milp"] < 0.7 * mix[5, "usher"]
    assert mix[7, "wsm-milp"] > 0.99 * 1200
    rows = json.loads(tables.kept_file("vision-slos").read_text("utf-8"))["rows"]
    by_load = {(row["slo_ms"], 5 * row["rps"], row["policy"]): row["simulated_goodput_rps"]
               for row in rows}
    for slo_ms in (150, 250, 350):
        wsm = [by_load[slo_ms, load, "wsm-milp"] for load in (3000, 4000, 5000)]
        assert 1.5 * wsm[1] < min(wsm[0], wsm[2])
    assert all(by_load[350, load, "igniter"] < 0.9 * load for load in (1000, 2000))
    rows = json.loads(tables.kept_file("ties").read_text("utf-8"))["rows"]
    six = {row["policy"]: row for row in rows if row["gpus"] == 6}
    assert six["ao-milp"]["tied_goodput_rps"][0] < 0.95 * six["usher"]["simulated_goodput_rps"]
    worst = six["ao-milp"]["tied_worst_by_model"]["efficientnet_b7"]
    usher = six["usher"]["by_model"]["efficientnet_b7"]
    assert worst["throughput_rps"] == pytest.approx(usher["throughput_rps"], rel=0.01)
    assert worst["goodput_rps"] < 0.6 * usher["goodput_rps"]


def test_kept_rows_of_warsaw_are_near_the_printed_violations_in_one_set_up():
    rows = json.loads(tables.kept_file("warsaw-both").read_text("utf-8"))["rows"]
    rates = {(row["seed"], row["scheduler"], row["order"]): row["violation_rate"] for row in rows}
    printed = {row["scheduler"]: row["printed_violation_rate"] for row in rows}
    baseline, late = "modified-baseline, no idle holder", "round-robin-d"
    for name in printed.keys() - {late}:
        assert rates[0, name, "arrival"] == pytest.approx(printed[name], abs=0.03)
    assert rates[0, late, "deadline"] == pytest.approx(printed[late], abs=0.002)
    for seed in (0, 1, 2):
        of_seed = [rates[seed, name, "arrival"] for name in printed.keys() - {baseline}]
        assert rates[seed, late, "deadline"] < 0.5 * min(of_seed)
        assert rates[seed, baseline, "arrival"] > 1.9 * max(of_seed)


def test_one_set_of_igniters_parameters_shows_what_the_thesis_prints():
    printed, _, found = json.loads(tables.kept_file("igniter").read_text("utf-8"))["rows"]
    for key in ("gpus_vision", "gpus_mix", "batches", "vgg19_beside_alexnet",
                "densenet121_beside_resnet50", "short"):
        assert found[key] == printed[key]
    assert sum(found["mix_rps"].values()) > 0.99 * 4 * 274.6


def test_clients_send_what_the_thesis_prints_within_a_percent():
    differences = [float(line.split("|")[4].strip(" %"))
                   for line in tables.clients([]).splitlines()[2:]]
    assert len(differences) == 4
    assert max(map(abs, differences)) < 1


def test_random_scenarios_count_those_near_the_best():
    rows = [{"scarce": scarce, "planned": planned, "clockwork": 0.9, "lru": None,
             "round-robin": 0.5, "bound": 1.0}
            for scarce, planned in ((True, 0.895), (False, 0.86), (True, 0.95))]
    lines = tables.random_scenarios(rows).splitlines()
    assert lines[2:] == ["| all | 3 | 1 | 2 | 0.0400 | 0.902 |",
                         "| scarce memory | 2 | 1 | 2 | 0.0050 | 0.922 |"]


def test_rows_that_are_there_are_not_made_again(tmp_path, monkeypatch):
    page = tmp_path / "docs" / "cluster.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- random:begin -->\nold\n<!-- random:end -->\nafter\n", "utf-8")
    rows = [{"scarce": True, "planned": 0.5, "clockwork": 0.25, "lru": 0.125,
             "round-robin": 0.25, "bound": 1.0}]
    (tmp_path / "random.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.setitem(tables.TABLES, "random",
                        tables.TABLES["random"]._replace(page="cluster.md"))
    monkeypatch.setattr(tables, "kept_file", lambda name: tmp_path / f"{name}-kept.json")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a script was run"))
    assert tables.main(["--only", "random", "--rows", str(tmp_path), "--docs",
                        str(page.parent)]) == 0
    assert page.read_text("utf-8").splitlines() == [
        "before", "<!-- random:begin -->", *tables.random_scenarios(rows).splitlines(),
        "<!-- random:end -->", "after"]


@pytest.mark.parametrize("name", [name for name, table in tables.TABLES.items() if table.columns])
def test_tables_are_those_of_their_kept_rows(name, capsys, monkeypatch):
    table = tables.TABLES[name]
    rows = json.loads(tables.kept_file(name).read_text("utf-8"))["rows"]
    if table.page:
        page = (DOCS / table.page).read_text("utf-8")
        assert f"<!-- {name}:begin -->\n{table.text(rows)}\n<!-- {name}:end -->" in page
    else:
        monkeypatch.setattr(tables, "write_atomic", lambda *_: None)  # of the kept rows
        assert tables.main(["--kept", "--only", name]) == 0
        assert table.text(rows) in capsys.readouterr().out
        assert any(f"`{name}`" in page.read_text("utf-8") for page in DOCS.rglob("*.md"))


def test_formulas_are_simulation_in_twelve_of_eighteen_settings():
    rows = json.loads(tables.kept_file("sigmaos-formulas").read_text("utf-8"))["rows"]
    assert [len(rows), sum(map(tables.off_the_formula, rows))] == [18, 6]  # as the page says
    assert all(row["simulated_s"] <= row["formula_s"] + 1e-9 for row in rows)
