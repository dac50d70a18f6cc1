"""Files that are named as libraries are: nothing that is started imports them."""


import pytest

from tests.faults.shadowed import by_module, plant, replanned, run_planted

for library in ("starlette", "uvicorn", "prometheus_client", "orjson"):
    pytest.importorskip(library)


@pytest.mark.slow
def test_files_named_as_libraries_are_not_imported(tmp_path, monkeypatch):
    folder = plant(tmp_path / "planted")
    assert list(run_planted(folder)) == []
    assert list(by_module(folder)) == []
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PLANTED", "")
    assert list(replanned(folder)) == []
