"""Profiles from request logs."""


import pytest

from ramsis.errors import InputFileError
from ramsis.profiles.importers import detect, import_profile

HEADER = "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
LOG = HEADER + """\
0.000,0.001,0.011,50,served,a,1,1,0,1
0.001,0.001,0.013,50,late,a,1,1,1,0
0.020,0.021,0.041,50,served,a,2,2,0,1
0.020,0.021,0.041,50,served,a,2,2,0,1
0.030,0.050,0.075,50,served,b,3,4,1,
0.031,0.050,0.075,50,served,b,3,4,1,
0.031,0.050,0.075,50,served,b,3,4,1,
0.032,0.080,0.089,50,served,b,1,1,1,
0.033,,0.060,50,dropped,,,,,
0.034,0.090,0.100,50,failed,b,1,1,1,
"""


def test_each_batch_is_one_sample_of_the_size_it_ran_as(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    assert detect(tmp_path / "log.csv") == "request-log"
    found = import_profile(tmp_path / "log.csv", accuracy={"b": 0.9})
    a, b = found.models
    assert (a.name, a.accuracy) == ("a", 0.75)
    assert [(one.batch, one.n, one.mean_ms) for one in a.batches] == [
        (1, 2, pytest.approx(11.0)), (2, 1, pytest.approx(20.0))]
    assert [(one.batch, one.n, one.mean_ms) for one in b.batches] == [
        (1, 1, pytest.approx(9.0)), (4, 1, pytest.approx(25.0))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEADER + "0,,1,50,dropped,,,,,\n", "no request was answered"),
        (HEADER + "0,2,1,50,served,a,1,1,0,1\n", "latency is not positive"),
        (HEADER + "0,1,2,50,served,a,two,,0,1\n", "batch"),
        (HEADER + "0,1,2,50,served,a,2,2,0,1\n", "batch size 1 was not measured"),
    ],
)
def test_logs_that_hold_no_profile_are_refused(tmp_path, text, said):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputFileError, match=said):
        import_profile(tmp_path / "log.csv")
