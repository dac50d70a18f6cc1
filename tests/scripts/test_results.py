"""The results page and the rows that it is made from."""

import json

import pytest
import results

PROMISES = [
    {"profile": "p", "slo_ms": 25.5, "workers": 4, "scheduler": scheduler, "load_qps": load_qps,
     "upper_bound": 0.97125, "violation_rate": late, "effective_accuracy": 0.9137,
     "expected_effective_accuracy": promise}
    for load_qps in (731.0, 1462.0)
    for scheduler, late, promise in (
        ("central-queue", 0.0, 0.9141), ("round-robin", 0.0123, 0.9099),
        ("jellyfish-plus", 0.0, None), ("model-switching", 1e-9, None), ("greedy", 0.2, None))]


def test_promises_are_one_line_for_each_setting_and_load():
    lines = results.render_promises(PROMISES).splitlines()
    assert len(lines) == 4
    assert lines[2] == ("| `p`, 25.5 ms, 4 | 731 | 0.9712 | 0.9141, 0.9137 "
                        "| 0.9099, 0.9137 (0.012) | 0.9137 | 0.9137 | 0.9137 (0.2) |")
    assert len({line.count("|") for line in lines}) == 1


def test_tables_between_marks_are_replaced_and_the_rest_kept(tmp_path):
    solver = {"solver": "ramsis", "kind": "random", "non_zeros": 10**7, "discount": 0.99,
              "seconds": 0.512, "peak_gb": 1.23}
    (tmp_path / "promises.json").write_text(json.dumps(PROMISES))
    (tmp_path / "solvers.json").write_text(json.dumps([solver]))
    page = "before\n" + "".join(f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\nafter\n"
                                for name in ("promises", "solvers"))
    text = results.page_with_tables(page, tmp_path)
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| random, 1e+07, 0.99 | 0.512 s, 1.23 GB | over 120 s | over 120 s |" in text
    with pytest.raises(SystemExit, match="lacks"):
        results.page_with_tables("no marks", tmp_path)


def test_the_page_is_made_from_the_rows():
    page = results.PAGE.read_text("utf-8")
    assert results.page_with_tables(page) == page
