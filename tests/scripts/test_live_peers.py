"""Servers of others: the reason that is shown where one does not start."""

import subprocess
from pathlib import Path

import pytest
from live import fleet, peers

LOG = "\n".join([
    "I1129 09:00:00.1 1 model_lifecycle.cc:472] \"loading: digits:1\"",
    "E1129 09:00:00.2 1 lifecycle.cc:642] \"failed to load 'digits': No module named 'orjson'\"",
    *(f"I1129 09:00:01.{i} 1 server.cc:1] \"shutting down\"" for i in range(30)),
    "error: creating server: Internal - failed to load all models"])


def test_the_reason_in_a_log_is_shown_with_its_last_lines():
    lines = fleet.reasons_in(LOG).splitlines()
    assert "No module named 'orjson'" in lines[0]
    assert lines[1:] == LOG.splitlines()[-3:]


def test_packages_that_an_interpreter_lacks_are_named(tmp_path, monkeypatch):
    def listed(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert "orjson" in command
        assert "numba" in command
        return subprocess.CompletedProcess(command, 0, "orjson\nstarlette\n")

    monkeypatch.setattr(subprocess, "run", listed)
    assert peers.lacks(Path("python")) == ["orjson", "starlette"]
    with (pytest.raises(RuntimeError, match="lacks orjson, starlette; install"),
          peers.ours_in_triton(None, [], None, tmp_path / "a" / "b" / "c", tmp_path)):
        pass
