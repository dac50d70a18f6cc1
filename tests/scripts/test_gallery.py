"""The list of all figures of the documentation."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_gallery_has_the_figures_of_all_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from gallery import DOCS, gallery

    text = gallery(DOCS)
    pictures = {path.name for path in DOCS.rglob("*.png") if "_build" not in path.parts}
    assert [name for name in sorted(pictures) if name not in text] == []
    del sys.modules["gallery"]
