"""``ramsis profile plot``: the figure of a profile set."""

import os
import sys
from unittest import mock

import pytest

from ramsis.profiles.importers import import_profile
from tests.cli.command import refused
from tests.profiles.samples import model, profile_set

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from ramsis.report.profile import label_points, plot_profile

OPTIONS = [("--batch", 8), ("--step", 0.01), ("--statistic", "mean")]
MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.mark.parametrize(("suffix", "more"), [*zip(MAGIC, OPTIONS, strict=True)])
def test_a_figure_is_written_in_the_kind_of_its_suffix(run, tmp_path, tiny_file, suffix, more):
    out = tmp_path / f"models{suffix}"
    profile, models = ("digits-cpu", 8) if "--statistic" in more else (tiny_file, 3)
    ran = run("profile", "plot", profile, "--out", out, *more)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{out}: written; models: {models}, on the front: {models}\n"
    assert out.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.parametrize("suffix", MAGIC)
def test_the_same_figure_is_the_same_file(tmp_path, suffix):
    found = profile_set(model("a", 0.7, {1: 10.0}), model("b", 0.8, {1: 20.0}))
    files = []
    for name, second in (("one", 0), ("two", 10**9)):
        with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": str(second)}):
            plot_profile(found, tmp_path / f"{name}{suffix}")
        files.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert files[0] == files[1]


def test_the_front_is_that_of_the_batch_size_asked_for(tmp_path):
    found = profile_set(model("a", 0.7, {1: 10.0, 4: 80.0}), model("b", 0.8, {1: 20.0, 4: 40.0}))
    assert plot_profile(found, tmp_path / "one.svg") == ("a", "b")
    assert plot_profile(found, tmp_path / "four.svg", batch=4) == ("b",)


def test_a_single_model_is_drawn_at_a_batch_beyond_the_measured_ones(tmp_path):
    plot_profile(profile_set(model("a", 0.7, {1: 10.0})), tmp_path / "x.svg", batch=3, step=0.01)
    assert (tmp_path / "x.svg").is_file()


@pytest.mark.parametrize("points", [
    [(0.5, 0.5)] * 12,
    [(i / 10, 0.5 + (i % 2) / 100) for i in range(11)],
])
def test_names_meet_neither_each_other_nor_the_frame(points):
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.2, 1.2), ylim=(0, 1))
    names = [f"model-number-{i}" for i in range(len(points))]
    left_out = label_points(figure, axes, points, names, ["black"] * len(points))
    shown = [text for text in axes.texts if text.get_text()]
    assert len(shown) == len(points) - len(left_out)
    assert len(shown) >= len(points) - 2
    boxes = [text.get_window_extent() for text in shown]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
        assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1


def test_markers_that_would_lie_on_each_other_are_rings_around_each_other(tmp_path, monkeypatch):
    figures: list[Figure] = []
    real = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **given: (
        figures.append(self), real(self, *args, **given))[1])
    near = [model(f"m{i}", 0.8 + i / 10_000, {1: 10.0 + i / 1000, 4: 20.0 + i / 1000})
            for i in range(3)]
    equal = [model("far", 0.9, {1: 50.0}), model("dominated", 0.9, {1: 50.0})]
    plot_profile(profile_set(*near, *equal), tmp_path / "near.png")
    left, right = figures[0].axes
    sizes = {round(line.get_xdata()[0], 3): [] for line in left.lines[1:]}  # type: ignore[index, var-annotated]
    for line in left.lines[1:]:
        sizes[round(line.get_xdata()[0], 3)].append(line.get_markersize())  # type: ignore[index]
    assert [sizes[10.0 + i / 1000] for i in range(3)] == [[6.0], [10.0], [14.0]]
    assert sorted(sizes[50.0]) == [6.0, 8.0]  # the cross of the dominated one around the other
    hollow = [line.get_markersize() for line in right.lines if line.get_linestyle() == "None"
              and line.get_markerfacecolor() == "none"]
    assert hollow == [8.0, 12.0]


def test_all_names_of_the_image_models_find_a_place(reference_dir, tmp_path):
    images = import_profile(reference_dir / "ramsis_image_profiles.csv")
    plot_profile(images, tmp_path / "images.svg", step=0.005)
    text = (tmp_path / "images.svg").read_text(encoding="utf-8")
    assert [item.name for item in images.models if f"<!-- {item.name} -->" not in text] == []


def test_bad_requests_are_refused(run, tmp_path, tiny_file):
    out = tmp_path / "x.png"
    refused(run("profile", "plot", "no-such", "--out", out), 3, "no such profile")
    refused(run("profile", "plot", tiny_file, "--out", tmp_path / "x.gif"), 2, "error: --out: ",
            "ends in .png, .pdf, .svg")
    refused(run("profile", "plot", tiny_file, "--out", out, "--batch", 0), 2, "--batch")
    refused(run("profile", "plot", tiny_file, "--out", out, "--step", 0), 2, "--step")
    refused(run("profile", "plot", tiny_file, "--out", out, "--step", 1e-9), 2, "step")
    assert not out.exists()


def test_without_matplotlib_one_line_names_the_extra(run, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = run("profile", "plot", "digits-cpu", "--out", tmp_path / "x.png")
    refused(ran, 2, "pip install 'ramsis[plot]'")


def test_a_name_with_dollar_signs_is_no_formula(tmp_path):
    """matplotlib would draw what stands between them as one, or fail."""
    names = ["$$", r"$\frac{$", "$x$", "a$b"]
    plot_profile(profile_set(*(model(name, 0.6 + 0.1 * i, {1: 10.0 * (i + 1), 2: 15.0 * (i + 1)})
                               for i, name in enumerate(names))), tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert [name for name in names if f"<!-- {name}" not in text] == []
