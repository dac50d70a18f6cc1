"""Files of another kind, units, separators, misspelt names: one line with the next step."""

import pytest

from ramsis.profiles.file import load, save
from tests.cli.command import refused, snapshot

TABLE = "model,batch_size,mean_ms,p95_ms,accuracy\nsmall,1,5,6,70\nsmall,2,8,9,70\n"
FILES: dict[str, str | bytes] = {
    "table.csv": TABLE,
    "times.txt": "2026-01-01T00:00:00Z\n2026-01-01T00:00:01Z\n2026-01-01T00:00:02Z\n",
    "rates.txt": "0 10\n10 20\n20 5\n",
    "log.csv": "arrival_s,start_s,finish_s,deadline_ms,outcome,model,batch,run_as,worker,correct\n"
               "0.0,0.0,0.01,25,served,svm-poly-6400,1,1,0,\n",
    "access.log": '1.2.3.4 - - [24/Nov/2026:16:00:00 +0000] "POST /predict HTTP/1.1" 200 12 "-" '
                  '"curl/8" 0.012\n',
    "bare.log": '1.2.3.4 - - [24/Nov/2026:16:00:00 +0000] "POST /predict HTTP/1.1" 200 12 "-" '
                '"curl/8"\n',
    "scenario.toml": 'format = "ramsis.scenario/1"\nname = "x"\n',
    "sheet.xlsx": b"PK\x03\x04" + bytes(40),
    "table.csv.packed": b"\x1f\x8b\x08" + bytes(40),
    "page.html": "<!DOCTYPE html><html></html>\n", "empty.txt": "",
    "header.csv": "timestamp,user\n",
    "zones.txt": "2026-01-01T00:00:00Z\n2026-01-01T00:00:01\n",
    "back.txt": "2026-01-01T00:00:02Z\n2026-01-01T00:00:01Z\n",
    "units.txt": "1.5\n2.5\n3.5\n", "words.txt": "hello\nworld\n",
    "many.csv": "id,user,host\n1,a,b\n",
    "negative.txt": "0 10\n10 -20\n", "object.json": '{"hello": 1}', "list.json": "[1, 2]",
    "cut.json": '{"format": "ramsis.profile/1", "name":',
    "batc.csv": TABLE.replace("batch_size", "btch"),
    "nounit.csv": TABLE.replace("_ms", ""),
    "ragged.csv": TABLE + "small,4\n", "word.csv": TABLE.replace("8,9", "fast,9"),
    "rows.csv": TABLE + "small,2,8,9,70\n", "pct.csv": TABLE.replace("70", "170"),
    "late.csv": "arrival_s,finish_s,model,deadline_ms\n1,0.5,svm-poly-6400,25\n",
    "nodeadline.csv": "arrival_s,finish_s,model\n1,1.5,svm-poly-6400\n",
    "nounit-log.csv": "received,done,model\n1,2,a\n",
    "noarrival.csv": "who,what\n1,2\n",
    "printed.json": '{\n "created_by": "ramsis 0.1.0",\n "command": "ramsis audit log.csv"}\n',
    "broken.toml": "a b\n", "planned/plan.json": "{}", "swept/results.csv": "a\n",
    "counted.csv": "time,requests\n2026-01-01 10:00:00,93\n2026-01-01 10:01:00,87\n",
    "perf.csv": "Concurrency,Inferences/Second,Client Send,p50 latency,p95 latency,Avg latency\n"
                "1,100,5,9000,9900,9100\n",
    "counts.csv": "who,requests\na,93\nb,87\n",
    "broken.jsonl": '{"timestamp": "2026-01-01T00:00:00Z", "latency_ms": 5}\n{"timestamp"\n',
}
SIMULATE = ["simulate", "--slo-ms", "25", "--workers", "4", "--scheduler", "greedy"]
PROFILED = [*SIMULATE, "--load", "100", "--profiles"]
TRACED = [*SIMULATE, "--profiles", "digits-cpu", "--trace"]
IMPORT = ["profile", "import", "--out", "out.json"]
BOUND = ["bound", "--profiles", "digits-cpu", "--slo-ms", "25", "--load", "100"]
AUDIT = ["audit", "--profiles", "digits-cpu", "--workers", "4"]

CASES: list[tuple[list[str], int, str]] = [
    ([*PROFILED, "times.txt"], 3, "`ramsis arrivals fit times.txt`"),
    ([*PROFILED, "rates.txt"], 3, "--trace rates.txt"),
    ([*IMPORT, "counted.csv"], 3, "this is a trace of loads: --trace counted.csv takes it"),
    ([*AUDIT, "perf.csv"], 3, "`ramsis profile import perf.csv --out PROFILE.json`"),
    ([*PROFILED, "log.csv"], 3, "`ramsis audit log.csv`"),
    ([*PROFILED, "access.log"], 3, "`ramsis audit access.log`"),
    ([*PROFILED, "scenario.toml"], 3, "`ramsis simulate scenario.toml`"),
    ([*PROFILED, "sheet.xlsx"], 3, "save its table as CSV"),
    ([*PROFILED, "cut.json"], 3, "allowed: a whole JSON document"),
    ([*TRACED, "planned"], 3, "`ramsis report planned --out PAGE.html`"),
    ([*TRACED, "counts.csv"], 3, "--time-column where each line is one request"),
    ([*PROFILED, "digits-cpu", "--network-ms", "1e300"], 2, "from 0 to 1e+12"),
    ([*PROFILED, "digits-cpu", "--overhead-ms", "1e300"], 2, "from 0 to 1e+12"),
    (["policy", "show", "printed.json"], 3, "`ramsis report printed.json --out PAGE.html`"),
    (["sweep", "broken.toml", "--out", "out"], 3, "allowed: lines of key = value"),
    ([*PROFILED, "table.csv.packed"], 3, "gunzip"),
    ([*PROFILED, "digit-cpu"], 3, "digits-cpu"),
    ([*PROFILED, "object.json"], 3, "allowed: ramsis.profile/1"),
    (["analyze", "policies/manifest.json"], 3, "its folder is for `ramsis analyze DIR`"),
    (["serve", "policies/manifest.json", "--check"], 3, "its folder is for `ramsis analyze DIR`"),
    (["export", "mig", "policies", "--out", "mig.yaml"], 3, "`ramsis analyze policies`"),
    ([*PROFILED, "policies"], 3, "`ramsis analyze policies`"),
    ([*TRACED, "profile.json"], 2, "--profiles profile.json"),
    ([*TRACED, "table.csv"], 3, "`ramsis profile import table.csv"),
    ([*TRACED, "empty.txt"], 3, "allowed: one a line"),
    ([*TRACED, "header.csv"], 3, "allowed: one a line"),
    ([*TRACED, "zones.txt"], 3, "allowed: ISO 8601 throughout"),
    ([*TRACED, "back.txt"], 3, "allowed: a time not before that of the line above"),
    ([*TRACED, "units.txt"], 2, "--unit with one of"),
    ([*TRACED, "words.txt"], 3, "allowed: ISO 8601"),
    ([*TRACED, "many.csv"], 3, "--time-column with one of these"),
    ([*TRACED, "negative.txt"], 3, "allowed: a finite number >= 0"),
    ([*TRACED, "missing.txt"], 3, "allowed: a path"),
    ([*TRACED, "times.txt", "--time-column", "arrivl"], 3, "allowed:"),
    ([*SIMULATE[:-2], "--profiles", "digits-cpu", "--load", "100", "--scheduler",
      "profile.json"], 2,
     "--profiles profile.json"),
    ([*SIMULATE[:-2], "--profiles", "digits-cpu", "--load", "100", "--scheduler", "gready"], 2,
     "allowed:"),
    ([*IMPORT, "times.txt"], 3, "`ramsis arrivals fit times.txt`"),
    ([*IMPORT, "access.log"], 3, "`ramsis audit access.log`"),
    ([*IMPORT, "profile.json"], 3, "--profiles FILE"),
    ([*IMPORT, "batc.csv"], 3, "--column batch=btch"),
    ([*IMPORT, "nounit.csv"], 3, "--unit ms"),
    ([*IMPORT, "ragged.csv"], 3, "allowed: 5"),
    ([*IMPORT, "word.csv"], 3, "allowed: a number"),
    ([*IMPORT, "rows.csv"], 3, "allowed: once (the first is line 3)"),
    ([*IMPORT, "pct.csv"], 3, "[0, 100]"),
    ([*IMPORT, "list.json"], 3, "allowed: objects such as"),
    ([*IMPORT, "empty.txt"], 3, "allowed: a header and a row"),
    ([*IMPORT, "table.csv", "--unit", "s"], 2, "or no --unit"),
    ([*IMPORT, "table.csv", "--column", "btach=batch_size"], 2, "allowed: model, batch"),
    ([*IMPORT, "table.csv", "--column", "batch=items"], 3, "allowed: model, batch_size"),
    ([*IMPORT, "table.csv", "--column", "batch"], 2, "FIELD=NAME"),
    ([*AUDIT, "profile.json"], 3, "--profiles profile.json"),
    ([*AUDIT, "times.txt"], 3, "`ramsis arrivals fit times.txt`"),
    ([*AUDIT, "bare.log"], 3, "$request_time"),
    ([*AUDIT, "access.log"], 3, "--slo-ms"),
    ([*AUDIT, "late.csv"], 3, "ends before it starts"),
    ([*AUDIT, "nodeadline.csv"], 3, "--slo-ms"),
    ([*AUDIT, "nounit-log.csv", "--slo-ms", "25"], 3, "--unit"),
    ([*AUDIT, "noarrival.csv"], 3, "--column arrival="),
    ([*AUDIT, "broken.jsonl", "--slo-ms", "25"], 3, "allowed: JSON lines"),
    ([*AUDIT, "log.csv", "--column", "arival=x"], 2, "allowed: arrival"),
    (["analyze", "profile.json"], 3, "--profiles profile.json"),
    (["validate", "times.txt"], 3, "`ramsis arrivals fit times.txt`"),
    (["arrivals", "fit", "profile.json"], 2, "--profiles profile.json"),
    (["simulate", "profile.json", "--scheduler", "clockwork"], 3, "--profiles profile.json"),
    ([*BOUND, "--workers", "0"], 2, "--workers: not a number of workers: got 0"),
    ([*BOUND, "--workers", "old=0,new=1"], 2, "--workers: old: not a number of workers: got 0"),
    ([*BOUND, "--workers", "many"], 2, "allowed: a whole number, or TYPE=N"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder that no command changes, and all that is in it."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    save(load("digits-cpu"), folder / "profile.json")
    (folder / "policies").mkdir()
    (folder / "policies" / "manifest.json").write_text('{"format": "ramsis.manifest/1"}')
    return folder, snapshot(folder)


@pytest.mark.parametrize(("arguments", "code", "step"), CASES, ids=lambda one: (
    " ".join(one)[-60:] if isinstance(one, list) else ""))
def test_a_wrong_input_is_refused_in_a_line_with_the_next_step(
    run, filled, monkeypatch, arguments, code, step
):
    folder, before = filled
    monkeypatch.chdir(folder)
    refused(run(*arguments), code, step)
    assert snapshot(folder) == before


def test_a_file_is_not_said_to_be_of_the_kind_that_was_asked_for(run, filled, monkeypatch):
    monkeypatch.chdir(filled[0])
    assert "this is" not in run("generate", "--settings", "broken.toml").err


def test_lines_that_are_no_objects_are_refused_in_a_line(run, tmp_path):
    for content, code, says in (("[1,2]\n", 3, "/lines.json > times.txt"),
                                ("5\n", 2, "no key holds times of requests")):
        (tmp_path / "lines.json").write_text(content)
        refused(run("arrivals", "fit", tmp_path / "lines.json", "--trace-format", "jsonl"), code,
                says)


def test_objects_of_batch_sizes_stay_rows_of_their_own(run, tmp_path):
    (tmp_path / "accuracy.json").write_text('{"a": 0.5}')
    sized, twice = tmp_path / "sized.json", tmp_path / "twice.json"
    sized.write_text('{"a": {"1": {"mean_ms": 5}, "2": {"mean_ms": 8}}}')
    twice.write_text('[{"model": "a", "cpu": {"batch": 1, "p95_ms": 9}, '
                     '"gpu": {"batch": 1, "p95_ms": 2}}]')
    given = ("--accuracy", tmp_path / "accuracy.json", "--out", tmp_path / "profile.json")
    refused(run("profile", "import", twice, *given), 3, "p95 of a at batch size 1 appears twice")
    assert run("profile", "import", sized, *given).code == 0
    (model,) = load(tmp_path / "profile.json").models
    assert [(one.batch, one.mean_ms) for one in model.batches] == [(1, 5.0), (2, 8.0)]
