"""Access logs in one command, against what they were made of."""


import pytest

from tests.logs.samples import STATUS, TOOK_S, nginx


def test_an_access_log_is_audited_in_one_command(run, tiny_file, tmp_path):
    (tmp_path / "access.log").write_text(nginx())
    ran = run("audit", tmp_path / "access.log", "--profiles", tiny_file, "--workers", 2,
              "--slo-ms", 100, "--scheduler", "round-robin:grid=fixed:10,max_queue=8", "--seeds",
              1,
              "--json")
    (row,) = ran.rows
    late = ((STATUS != 200) | (TOOK_S > 0.1)).mean()
    assert row["violation_rate"] == pytest.approx(late, abs=1e-9)
    assert row["effective_accuracy"] <= row["upper_bound"] + 1e-9
    assert "accuracy is an upper end" in ran.err
    assert "read as nginx's access log, a request in each row" in ran.err
