"""The page of each kind: what it says, what it refuses, and how a browser shows it."""

import contextlib
import html
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import placement_milp
from ramsis.cli.main import _run
from ramsis.policy import read
from ramsis.profiles import load, save
from ramsis.report.page import MOST_BYTES, write_report
from ramsis.sweep import SweepSpec, run_sweep
from ramsis.synthesis import SynthesisSettings, generate_set
from tests.cli.command import refused
from tests.placement.samples import problem
from tests.report.browser import browser, opened
from tests.scenario.samples import document

EVIL = "<script>alert('x')</script> & \"more\""
SLO = 100.0


@pytest.fixture(scope="module")
def evil(tiny):
    """A profile with a model that is called as a script is written."""
    first, *rest = tiny.models
    return replace(tiny, models=(replace(first, name=EVIL), *rest))


@pytest.fixture(scope="module")
def inputs(evil, tmp_path_factory):
    """Something of each kind, by its name."""
    folder = tmp_path_factory.mktemp("inputs")
    save(evil, folder / "evil.json")
    settings = SynthesisSettings(slo_ms=SLO, workers=2, grid="fixed:10", max_queue=8, headroom=0.0)
    generate_set(evil, (20.0, 60.0, 100.0), settings, folder / "policies")
    central = SynthesisSettings(slo_ms=SLO, workers=2, dispatch="central-queue", max_queue=8,
                                headroom=0.0)
    generate_set(evil, (20.0, 60.0), central, folder / "central")
    run_sweep(SweepSpec.of({
        "profiles": str(folder / "evil.json"), "slo_ms": SLO, "workers": [1, 2],
        "load_qps": [20, 40], "scheduler": ["greedy", "jellyfish-plus"], "duration_s": 2,
        "seeds": 2}), folder / "sweep")
    placement_milp.write_placement(placement_milp.place(problem()), folder / "placement.json")
    return {"profile": folder / "evil.json", "policies": folder / "policies",
            "central": folder / "central", "sweep": folder / "sweep",
            "placement": folder / "placement.json"}


def printed(path: Path, *arguments: object) -> Path:
    """What a command prints with --json, in a file."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert _run([*map(str, arguments), "--json"]) == 0
    path.write_text(output.getvalue())
    return path


@pytest.fixture(scope="module")
def results(inputs, tmp_path_factory):
    """The results of commands, beside the inputs."""
    tmp_path = tmp_path_factory.mktemp("results")
    terms = ("--profiles", inputs["profile"], "--slo-ms", SLO)
    simulate = ("simulate", *terms, "--workers", 2, "--duration-s", 2, "--seeds", 2, "--policy",
                inputs["policies"], "--scheduler", "greedy")
    return {
        **inputs,
        "simulation": printed(tmp_path / "simulation.json", *simulate, "--load", "20,60,100"),
        "one load": printed(tmp_path / "one.json", *simulate, "--load", "60"),
        "capacity": printed(tmp_path / "capacity.json", "capacity", *terms, "--load", "20,60",
                            "--scheduler", "greedy", "--duration-s", 2, "--max-violation", 0.5),
        "cheapest": printed(tmp_path / "cheapest.json", "capacity", "--profiles",
                            f"a={inputs['profile']},b={inputs['profile']}", "--cost", "a=2,b=1",
                            "--slo-ms", SLO, "--load", "20", "--scheduler",
                            "round-robin:grid=fixed:10,max_queue=8", "--seeds", 2,
                            "--duration-s", 2, "--max-violation", 0.5),
        "placed": printed(tmp_path / "placed.json", "simulate", "--placement",
                          inputs["placement"], "--duration-s", 1, "--fixed"),
        "cluster": cluster(tmp_path),
    }


def cluster(folder: Path) -> Path:
    """What schedulers of a cluster came to."""
    (folder / "scenario.json").write_text(json.dumps(document()))
    return printed(folder / "cluster.json", "simulate", folder / "scenario.json",
                   "--scheduler", "clockwork", "--scheduler", "random", "--bound",
                   "--by", "stream", "--by", "model")


def charts(page: str) -> dict[str, dict[str, Any]]:
    """What the script of a page is given to draw, by title."""
    found = re.findall(r'<figcaption[^>]*>(.*?)</figcaption></figure>\s*'
                       r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)
    return {title: json.loads(text) for title, text in found}


READABLE = """() => Math.min(...[...document.querySelectorAll('.plot svg')].map(
    one => Math.min(one.clientWidth / one.viewBox.baseVal.width,
                    one.clientHeight / one.viewBox.baseVal.height)))"""
"""How small the smallest figure is printed, of the size that it was drawn for."""


@pytest.mark.slow
def test_a_page_of_each_kind_is_drawn_without_errors_and_without_the_network(results, tmp_path):
    with browser() as started:
        for kind, source in results.items():
            page = tmp_path / f"{kind}.html"
            write_report([source], page)
            assert page.stat().st_size < MOST_BYTES
            with opened(started, page) as found:
                for width in (1280, 380):
                    found.page.set_viewport_size({"width": width, "height": 900})
                    found.settle()
                    figures, drawn = found.drawn()
                    assert figures == drawn > 0, kind
                    # Nothing is wider than the screen; tables scroll in their own frame.
                    wide = found.page.evaluate("document.documentElement.scrollWidth")
                    assert wide <= width, kind
                found.page.emulate_media(media="print")
                found.page.set_viewport_size({"width": 688, "height": 990})  # A4, less margins
                assert found.page.evaluate("document.documentElement.scrollWidth") <= 688, kind
                assert found.page.evaluate(READABLE) > 0.6, kind
                assert found.said == [], kind
                assert found.requests == [page.resolve().as_uri()], kind


@pytest.fixture
def shown(inputs, tmp_path):
    """The page on a set of policies for a central queue, in a browser."""
    write_report([inputs["central"]], tmp_path / "page.html")
    with browser() as started, opened(started, tmp_path / "page.html") as found:
        yield found
        assert found.said == []


def test_values_are_shown_by_pointer_and_keys_figures_zoom_and_sliders_change_them(shown):
    page = shown.page
    plot = page.locator("figure .plot svg").first
    plot.focus()
    for key in ("ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    tip = page.locator(".tip")
    assert "effective accuracy: " in tip.inner_text()
    assert page.locator("figure .unseen").first.text_content() == tip.text_content()
    before = plot.locator("text").all_text_contents()
    page.locator("button[aria-label='Zoom in']").first.click()
    assert plot.locator("text").all_text_contents() != before
    page.locator("button[aria-label='Show all']").first.click()
    assert plot.locator("text").all_text_contents() == before
    table = page.locator("figure").last
    cell = table.locator(".plot svg")
    cell.hover()
    assert re.search(r"\d+ queued, slack [\d.]+ ", tip.inner_text())
    assert re.search(r"batch|wait|drop", tip.inner_text())
    drawn, note = cell.inner_html(), table.locator(".note").inner_text()
    slider = table.locator("input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "60"
    assert table.locator(".note").inner_text() != note
    assert cell.inner_html() != drawn


def test_a_page_is_dark_or_light_as_the_reader_wishes_and_light_in_print(inputs, tmp_path):
    page = tmp_path / "page.html"
    write_report([inputs["profile"]], page)
    colour = "getComputedStyle(document.body).backgroundColor"
    with browser() as started:
        with opened(started, page, color_scheme="dark") as found:
            assert found.page.evaluate(colour) == "rgb(20, 23, 28)"
            found.page.emulate_media(media="print")
            assert found.page.evaluate(colour) == "rgb(255, 255, 255)"
            figures, drawn = found.drawn()
            assert figures == drawn > 0
            assert not found.page.locator(".zoom").first.is_visible()
        with opened(started, page, color_scheme="light") as found:
            assert found.page.evaluate(colour) == "rgb(255, 255, 255)"


def test_every_control_and_figure_has_a_name(shown):
    page = shown.page
    unnamed = page.evaluate("""() => [
        ...[...document.querySelectorAll('button, input, select, .plot svg, [tabindex]')]
          .filter(one => !(one.getAttribute('aria-label') || one.closest('label')
            || one.textContent.trim())),
        ...[...document.querySelectorAll('figure')].filter(one => !document.getElementById(
          one.getAttribute('aria-labelledby')))].map(one => one.outerHTML.slice(0, 80))""")
    assert unnamed == []
    assert page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.slow
def test_names_are_text_and_nothing_else(results, tmp_path):
    page = tmp_path / "all.html"
    write_report(list(results.values()), page, title=EVIL)
    text = page.read_text()
    assert "<script>alert" not in text
    assert html.escape(EVIL) in text
    assert any(EVIL in json.dumps(chart, ensure_ascii=False).replace('\\"', '"')
               for chart in charts(text).values())
    with browser() as started, opened(started, page) as found:
        assert found.said == []
        assert found.page.locator("h1").inner_text() == EVIL
        figures, drawn = found.drawn()
        assert figures == drawn


@pytest.mark.slow
def test_a_page_says_how_it_was_made_and_what_is_in_it(results, tmp_path, evil):
    page = tmp_path / "page.html"
    assert write_report([results["simulation"], results["policies"], results["sweep"]], page) == 3
    text = html.unescape(page.read_text())
    assert "ramsis simulate --profiles" in text
    assert f"ramsis verify {results['policies']}" in text
    assert f"--out {results['sweep']}" in text
    assert text.count(evil.fingerprint) == 3


def test_the_map_of_a_policy_holds_its_table(inputs, tmp_path):
    page = tmp_path / "page.html"
    write_report([inputs["policies"]], page)
    (chart,) = [one for one in charts(page.read_text()).values() if one["kind"] == "map"]
    files = sorted(inputs["policies"].glob("round-robin-*.json"))
    assert len(chart["frames"]) == len(files) == 3
    for frame, file in zip(chart["frames"], files, strict=True):
        policy = read(file)
        model, batch = policy.model_and_batch()
        for n, row in enumerate(frame["index"][0]):
            runs = frame["rows"][row]
            for start, code in zip(runs[::2], runs[1::2], strict=True):
                of_model, of_batch = frame["actions"][code] if code >= 0 else (None, 0)
                assert batch[0, n, start] == of_batch
                if of_batch:
                    assert policy.models[model[0, n, start]].name == chart["models"][of_model]


def test_a_sweep_of_many_cells_fits_one_page(tmp_path):
    folder = tmp_path / "sweep"
    run_sweep(SweepSpec.of({
        "profiles": "digits-cpu", "slo_ms": 50, "workers": 1, "load_qps": 20,
        "scheduler": "greedy", "duration_s": 1}), folder)
    head, row = (folder / "results.csv").read_text().splitlines()
    load = head.split(",").index("load_qps")
    cells = row.split(",")
    lines = [head]
    for i in range(31_000):
        cells[load] = str(float(i))
        lines.append(",".join(cells))
    (folder / "results.csv").write_text("\n".join(lines) + "\n")
    write_report([folder], tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < MOST_BYTES
    assert "the first 30000 of 31000 cells" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("content", "words"), [
    ('{"rows": []}', ("nothing to report on", "allowed: a profile")),
    ('{"format": "ramsis.value-table/1"}', ("nothing to report on", "ramsis.value-table/1")),
    ('{"rows": [{"label": "a", "violation_rate": "none"}]}', ("rows[0]", "not a number")),
    ('{"rows": [{"label": "a", "violation_rate": 0}, 7]}', ("rows[0].effective_accuracy",)),
    ('{"rows": [{"workers_bound": 1, "clear": true}]}', ("rows[0].workers", "not a number")),
    ('{"rows": [{"label": "a", "violation_rate": 0, "effective_accuracy": 1, "workers": 1, '
     '"slo_ms": 9, "by_class": [{"sizes": [1]}]}]}',
     ("rows[0].by_class[0].sizes", "not a range of sizes")),
    ("{", ("not valid JSON",)),
])
def test_what_is_no_result_is_refused_in_a_line(content, words, tmp_path, run):
    path = tmp_path / "bad.json"
    path.write_text(content)
    refused(run("report", path, "--out", tmp_path / "page.html"), 3, "bad.json", *words)
    assert not (tmp_path / "page.html").exists()


def test_a_folder_without_results_and_a_missing_file_are_refused(tmp_path, run):
    out = tmp_path / "page.html"
    refused(run("report", tmp_path, "--out", out), 3, "nothing to report on")
    refused(run("report", tmp_path / "none.json", "--out", out), 3, "none.json", "no such file")
    (tmp_path / "results.csv").write_text("workers,scheduler\n1\n")
    refused(run("report", tmp_path, "--out", out), 3, "not a table of a sweep")


def test_a_page_that_would_be_too_large_is_refused(inputs, tmp_path, run, monkeypatch):
    out = tmp_path / "page.html"
    monkeypatch.setattr("ramsis.report.page.MOST_BYTES", 40_000)
    refused(run("report", inputs["central"], "--out", out), 3, "too much for one page")
    assert not out.exists()


def test_a_folder_of_several_results_has_a_section_for_each(inputs, tmp_path, run):
    ran = run("report", inputs["profile"].parent, "--out", tmp_path / "page.html")
    assert ran.code == 0, ran.err
    assert "5 sections" in ran.out


def test_a_sweep_of_scenarios_is_reported_on(tmp_path, run):
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(json.dumps(document(name=name)))
    out, page = tmp_path / "sweep", tmp_path / "page.html"
    run_sweep(SweepSpec.of({"scenario": [str(tmp_path / "a.json"), str(tmp_path / "b.json")],
                            "scheduler": ["clockwork", "lru"], "seeds": 2}), out)
    for source in (out, out / "scenarios.csv", out / "sweep.json"):
        ran = run("report", source, "--out", page)
        assert ran.code == 0, ran.err
        text = page.read_text()
        assert "a, clockwork" in text
        assert "b, lru" in text
        assert "share of the bound" in text
    (out / "scenarios.csv").write_text("scenario,scheduler\na\n")
    refused(run("report", out, "--out", tmp_path / "no.html"), 3, "scenarios.csv",
            "not a table of a sweep")
    (out / "scenarios.csv").unlink()
    refused(run("report", out / "sweep.json", "--out", tmp_path / "no.html"), 3, "sweep.json",
            "nothing to report on")


def test_a_shipped_profile_is_reported_on_by_its_name(tmp_path):
    write_report(["digits-cpu"], tmp_path / "page.html")
    assert load("digits-cpu").fingerprint in (tmp_path / "page.html").read_text()


def test_rows_that_lack_what_may_be_missing_are_shown(tmp_path, run):
    """And counts that were edited into fractions, and a key of another kind of answer."""
    row = {"scheduler": "greedy", "workers": 2.5, "workers_bound": 2, "slo_ms": 100, "gap": 1,
           "clear": True, "cost": "much", "worker_types": "none"}
    source, page = tmp_path / "a.json", tmp_path / "page.html"
    source.write_text(json.dumps({"command": "capacity", "rows": [row]}))
    ran = run("report", source, "--out", page)
    assert (ran.code, ran.err.startswith("error")) == (0, False), ran.err
    assert "2.5" in page.read_text()
    del row["gap"]
    source.write_text(json.dumps({"rows": [row]}))
    refused(run("report", source, "--out", page), 3, "rows[0].gap", "not a number")
