"""``scripts/clockwork_rl.py``: tables of the page from the kept rows, and what the rows show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import clockwork_rl

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROWS = clockwork_rl.read_rows(DOCS / "results" / "clockwork-rl.csv")


@pytest.mark.parametrize("name", clockwork_rl.TABLES)
def test_the_page_has_the_tables_of_the_kept_rows(name: str) -> None:
    table = clockwork_rl.TABLES[name](ROWS)
    page = (DOCS / "evaluation" / "clockwork.md").read_text("utf-8")
    assert f"<!-- {name}:begin -->\n{table}\n<!-- {name}:end -->" in page


def test_the_sparse_reward_learns_nothing_and_early_rewards_do_in_each_seed() -> None:
    figures = clockwork_rl.figures_of(ROWS, "rewards")
    seeds = {seed for _, seed in figures}
    assert len(figures) == 3 * len(seeds) == 15
    for seed in seeds:
        sparse, early = figures["sparse", seed], figures["early", seed]
        assert sparse.mean < early.mean
        assert sparse.best < early.best
    mean = {reward: sum(figures[reward, seed].mean for seed in seeds) / len(seeds)
            for reward in clockwork_rl.REWARDS}
    assert mean["sparse"] < mean["work"] < mean["early"]


def test_longer_training_in_two_stages_does_not_reach_all_requests() -> None:
    second = clockwork_rl.figures_of(ROWS, "stages-second")
    assert {reward for reward, _ in second} == set(clockwork_rl.REWARDS)
    assert max(values.best for values in second.values()) < 0.95
    assert second["early", 0].last < second["sparse", 0].last < second["work", 0].last


def test_both_streams_of_two_slos_are_answered_in_time() -> None:
    kept = {row.stream: row.in_time for row in ROWS if row.study == "two-slos" and row.kept}
    assert len(kept) == 2
    assert min(kept.values()) > 0.95


def test_rows_are_written_and_read_and_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sb3_contrib")
    path = tmp_path / "rows.csv"
    words = ["--rows", str(path), "--agents", str(tmp_path / "agents"), "--study", "two-slos",
             "--steps", "300"]
    assert clockwork_rl.main(words) == 0
    rows = clockwork_rl.read_rows(path)
    assert {row.stream for row in rows} == {"at once", "later"}
    assert [row.kept for row in rows][-2:] == [True, True]
    text = path.read_text()
    clockwork_rl.write_rows(path, rows)
    assert path.read_text() == text
    monkeypatch.setattr(clockwork_rl.Study, "add", lambda *_: pytest.fail("trained again"))
    assert clockwork_rl.main(words) == 0
