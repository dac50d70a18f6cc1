"""A headless Chromium for the tests of pages."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    """Where Chromium is: as the variable CHROMIUM says, on the path, or beside Python."""
    if os.environ.get("CHROMIUM"):
        return os.environ["CHROMIUM"]
    here = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
    return next((found for name in _NAMES if (found := shutil.which(name, path=here))), None)


@dataclass
class Opened:
    """A page that was opened, with what it asked for and said."""

    page: Any
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Wait until all figures are drawn for the width that they have now."""
        fits = """() => [...document.querySelectorAll('.plot')].every(one => Math.abs(
            one.clientWidth - one.firstChild.getAttribute('width')) <= 2)"""
        for _ in range(100):
            if self.page.evaluate(fits):
                return
            self.page.wait_for_timeout(30)
        raise AssertionError("figures do not fit")

    def drawn(self) -> tuple[int, int]:
        """Figures, and those of them that are drawn."""
        script = "one => one.dataset.drawn === 'yes' && one.querySelectorAll('.plot svg *').length"
        figures = self.page.query_selector_all("figure")
        return len(figures), sum(bool(one.evaluate(script)) for one in figures)


@contextmanager
def browser() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        path = chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            pytest.skip("no Chromium here: `playwright install chromium`, or set CHROMIUM")
        started = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextmanager
def opened(browser: Any, path: Path, width: int = 1280, **more: Any) -> Iterator[Opened]:
    """A file in a new page, with whatever it asks the network for and says."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **more)
    page = context.new_page()
    found = Opened(page)
    page.on("request", lambda request: found.requests.append(request.url))
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.goto(path.resolve().as_uri())
    page.wait_for_selector("html[data-ready]", timeout=10_000, state="attached")
    yield found
    context.close()
