"""The league's table: the best model in hindsight, and a page that gets it between its marks."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("skl2onnx")
from league import best, figure, table
from study import with_part


def row(server: str, model: str, accuracy: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    return {"workers": 1, "arrivals": "Poisson, 50%", "load_qps": 317.3, "server": server,
            "model": model, "seed": seed, "effective_accuracy": accuracy, "violation_rate": 0.013,
            "response_p50_ms": 11.7, "response_p99_ms": None, "cpu_ms": 0.37,
            "promised_effective_accuracy": None, "stolen_share": None, **more}


ROWS = [row("Triton, delay 0 ms", "small", 0.93), row("Triton, delay 0 ms", "large", 0.99),
        row("Triton, delay 0 ms", "small", 0.94, 1), row("Triton, delay 0 ms", "large", 0.41, 1),
        row("ramsis serve, central queue", "by policy", 0.95, promised_effective_accuracy=0.951)]


def test_the_best_model_in_hindsight_is_that_of_all_repetitions():
    triton, ours = best(ROWS).to_dict("records")
    assert (triton["model"], triton["repeats"]) == ("small", 2)
    assert triton["effective_accuracy"] == pytest.approx(0.935)
    assert ours["promised_effective_accuracy"] == 0.951


def test_the_best_of_a_load_is_bold():
    lines = table(ROWS).splitlines()
    assert [("**" in line) for line in lines] == [False, False, False, True]
    assert lines[2].startswith("| 1 × Poisson, 50%, 317/s | Triton, delay 0 ms |")
    assert lines[3].startswith("| | ramsis serve, central queue |")
    assert "**0.9500** | 0.9510 | 1.30% | – | 0.37 | – |" in lines[3]


def test_a_page_keeps_what_is_outside_its_marks():
    page = "before\n<!-- league:begin -->\nold\n<!-- league:end -->\nafter\n"
    assert with_part(page, "new", "league") == page.replace("old", "new")
    with pytest.raises(SystemExit, match="lacks"):
        with_part("without marks", "new", "league")


def test_the_page_of_the_docs_has_the_marks():
    page = Path(__file__).resolve().parents[2] / "docs" / "serving" / "league.md"
    assert "new row" in with_part(page.read_text(), "new row", "league")


def test_a_figure_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    figure(ROWS, tmp_path / "league.svg")
    assert "<svg" in (tmp_path / "league.svg").read_text()
