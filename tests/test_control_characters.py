"""Names with characters that a terminal obeys are refused where they are read, others escaped."""

import json
from typing import Any

import pytest

from ramsis import profiles, runtime
from ramsis.audit.request_log import Request, read_request_log, write_request_log
from ramsis.errors import InputFileError, describe, printable
from ramsis.files import canonical_json
from ramsis.policy import read
from ramsis.profiles.importers import request_log
from ramsis.profiles.importers.instances import read_instance_profile
from ramsis.scenario import read_scenario
from ramsis.serving.variants import read_variants
from ramsis.tables import Column, csv_text, html_table
from tests.policy.samples import document

ODD = {"escape": "a\x1b[31mb", "right to left": "a\u202eb", "nul": "a\x00b", "lines": "a\r\nb",
       "line": "a\u2028b", "c1": "a\x9bb"}


def profile(name: str) -> dict[str, Any]:
    return {"format": "ramsis.profile/1", "name": "p", "models": [
        {"name": name, "accuracy": 0.5, "batches": [{"batch": 1, "p95_ms": 1.0}]}]}


def refused(error: pytest.ExceptionInfo[InputFileError]) -> None:
    said = str(error.value)
    assert said.isprintable()
    assert "without control characters" in said


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_names_are_refused_where_they_are_read(tmp_path, odd):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(profile(odd)))
    with pytest.raises(InputFileError) as error:
        profiles.load(path)
    refused(error)
    stated = document()
    stated["models"][0]["name"] = odd
    path.write_text(canonical_json(stated))
    for reader in (read, runtime.load_selector):
        with pytest.raises(InputFileError) as error:
            reader(path)
        refused(error)
    toml = tmp_path / "a.toml"
    toml.write_text(f'name = {json.dumps(odd)}\n[[variants]]\nname = "x"\nmodel = "x.onnx"\n')
    with pytest.raises(InputFileError) as error:
        read_variants(toml)
    refused(error)
    toml.write_text(f'format = "ramsis.scenario/1"\nname = {json.dumps(odd)}\n')
    with pytest.raises(InputFileError) as error:
        read_scenario(toml)
    refused(error)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_cells_of_tables_are_refused(tmp_path, odd):
    log = tmp_path / "log.csv"
    log.write_text(f'arrival_s,finish_s,deadline_ms,model\n0,1,2000,"{odd}"\n', newline="")
    with pytest.raises(InputFileError, match="model: not a text") as error:
        read_request_log(log)
    refused(error)
    rows = "model,instance,batch,processes,latency_ms,throughput_rps,gpu_type\n"
    for cells in (f'"{odd}",1g.5gb,1,1,2,500,a', f'm,"{odd}",1,1,2,500,a',
                  f'm,1g.5gb,1,1,2,500,"{odd}"'):
        path = tmp_path / "rows.csv"
        path.write_text(rows + cells + "\n", newline="")
        with pytest.raises(InputFileError) as error:
            read_instance_profile(path)
        refused(error)
    if "\0" not in odd:
        path = tmp_path / f"{odd}.csv"
        path.write_text("Mig instance,Batch size,Workload Number,Throughput,Latency\n1,1,1,5,.2\n")
        with pytest.raises(InputFileError) as error:
            read_instance_profile(tmp_path / path.name)
        refused(error)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_other_texts_are_escaped(tmp_path, run, odd):
    assert describe(odd, where=odd, value=odd, allowed=odd).isprintable()
    assert str(InputFileError(odd)).isprintable()  # without any detail, too
    assert printable(odd).isprintable()
    shown = html_table([Column("a", odd)], [{"a": odd}], caption=odd)
    assert shown.replace("\n", "").isprintable()
    assert csv_text([{"a": odd}]).replace("\n", "").isprintable()
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**profile("a"), "hardware": {"cpu": odd},
                                "measurement": {"notes": [odd], "tool": odd}}))
    ran = run("profile", "show", path)
    assert ran.code == 0
    assert (ran.out + ran.err).replace("\n", "").isprintable()
    page = tmp_path / "page.html"
    assert run("report", path, "--out", page).code == 0
    assert odd not in page.read_text()


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@sum(1)"])
def test_a_table_holds_no_formulas(formula):
    assert csv_text([{"a": formula, "b": -1.5}]) == f"a,b\n'{formula},-1.5\n"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum(1)", "'tis", "a"])
def test_a_request_log_holds_no_formulas_and_gives_names_back(tmp_path, name):
    path = tmp_path / "log.csv"
    write_request_log(path, [Request(0.0, 0.0, 0.1, 200.0, "served", name, 1, 1, 0)])
    _, line = path.read_text().splitlines()
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in line.split(","))
    assert read_request_log(path).model.tolist() == [name]
    assert list(request_log.read(path)) == [name]
