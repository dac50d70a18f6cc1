"""Forecasts: files that are read and refused, and what a table makes of them."""

import pytest

from ramsis.errors import InputFileError
from ramsis.runtime.scaling_table import ScalingControl, ScalingTable
from ramsis.scaling.levels import read_forecast
from tests.cli.command import refused

_GOOD = "time_s,forecast_qps,error\n0,12.5,0.1\n15,31.7,0.25\n40,8,0.1\n"


def test_the_highest_load_until_the_horizon_is_told(tmp_path):
    file = tmp_path / "load.csv"
    file.write_text(_GOOD)
    forecast = read_forecast(file)
    assert forecast.error == 0.25
    assert forecast.told(3.0, 12.0) == (12.5, 12.5)  # the next begins then
    assert forecast.told(3.0, 12.5) == (12.5, 31.7)
    assert forecast.told(41.0, 500.0) == (8.0, 8.0)
    assert forecast.later(5.0).told(3.0, 1.0) == (None, None)


@pytest.mark.parametrize(("text", "words"), [
    ("time_s,forecast_qps\n0,12\n", "error"),
    ("", "time_s"),
    ("time_s,forecast_qps,error\n", "time_s"),
    ("time_s,forecast_qps,error\n0,much,0.1\n", "line 2: forecast_qps"),
    ("time_s,forecast_qps,error\n0,12\n", "line 2: error"),
    ("time_s,forecast_qps,error\n0,12,-0.1\n", "line 2: error"),
    ("time_s,forecast_qps,error\n5,12,0.1\n5,13,0.1\n", "line 3: time_s"),
])
def test_a_damaged_file_is_refused(tmp_path, text, words):
    file = tmp_path / "load.csv"
    file.write_text(text)
    with pytest.raises(InputFileError, match=words):
        read_forecast(file)


def test_a_damaged_file_ends_the_command_in_one_line(run, tmp_path):
    refused(run("scale", "--profiles", "image-cpu", "--slo-ms", "350", "--trace", "day",
                "--startup-s", "10", "--forecast", tmp_path, "--out", tmp_path / "out"), 3,
            "cannot be read")
    assert not (tmp_path / "out").exists()


def _control(window: int = 1, **more: object) -> ScalingControl:
    return ScalingControl(ScalingTable(
        levels_qps=(10.0, 100.0), trends=(0.0,), thresholds=(((1, 1),), ((8, 8),)), smoothing=0.5,
        forecast_error=0.3, window=window, interval_s=15.0, startup_s=15.0, least=1, most=20,
        **more))  # type: ignore[arg-type]


def test_thresholds_of_a_believed_forecast_are_its_own():
    control = _control(forecast_thresholds=((2, 2), (5, 5)))
    assert control.wanted(10.0, 1, 0, 10.0, 100.0) == 5
    assert control.wanted(100.0, 1, 4, 10.0, 10.0) == 8  # 10 did not come: the monitor's
    assert not control.believed


def test_the_monitors_load_is_the_mean_of_its_window():
    control = _control(window=3)
    assert [control.wanted(load, 1, 0) for load in (10.0, 100.0, 10.0, 10.0, 10.0)] == [
        1, 8, 8, 8, 1]
