"""The built documentation: what its search finds first, and that it needs no network."""

import html
import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.test_docs import COMMANDS
from tests.test_public_names import MODULES

ROOT = Path(__file__).resolve().parents[1]
WORDS = {
    "effective accuracy": ("questions", "late, dropped and failed ones count 0"),
    "headroom": ("howto/headroom", "longer service times than measured"),
    "C++": ("howto/embed", "ramsis export c"),
    "Triton": ("howto/servers", "dynamic_batching"),
    "LLM": ("howto/llm", "do not apply to token-by-token serving"),
    "bound": ("howto/bound", "no scheduler exceeds"),
    "what is promised": ("questions", "Every policy file states what it will deliver"),
    "how to compare an own scheduler": ("questions", "subclass of"),
    "how to measure a profile": ("questions", "ramsis profile measure"),
    "autoscaling": ("autoscaling", "plans the number of workers over time"),
    "how much does headroom cost": ("howto/headroom", "costs more than 0.003 of effective"),
    "central queue or round robin": ("questions", "a component that sees all requests"),
    "which MIG profile": ("howto/gpus", "a model that does not fit an instance"),
    "which batching delay": ("howto/batching", "max_queue_delay_microseconds"),
    "why is p99 so high": ("howto/batching", "wait behind each other"),
    "why ramsis": ("why", "When it is not worth it"),
    "what to do when a promise fails live": ("questions", "the main cause of the violations"),
    "generate_policy": ("reference/ramsis.synthesis", "Generate"),
    "BibTeX": ("cite", "@inproceedings"),
    "why are requests dropped": ("audit", "dropped while the fastest model could still"),
    "triton ensemble": ("audit", "gives the model behind a name"),
    "nginx log": ("audit", "also of the ingress controller"),
    "heterogeneous GPUs": ("heterogeneous", "--workers"),
    "bursty arrivals": ("questions", "ramsis arrivals fit requests.csv"),
    "own MDP": ("solvers", "any finite Markov decision process"),
    "change policies without restart": ("serving/server", "Policies that change"),
    "drain": ("howto/deploy", "--drain-s"),
    "exit codes": ("cli", "3 bad input file"),
    "configuration file": ("cli", "--settings"),
    "cold start": ("cluster", "models that are loaded"),
    "how accurate is the simulation": ("serving/fidelity", "promised, simulated and live"),
    "how many requests per second can I serve": ("howto/gpus", "the highest load that a"),
    "GPU sharing": ("sharing", "share"),
    "authentication": ("serving/server", "It has no authentication"),
    "import a CSV": ("profiles", "ramsis profile import"),
    "padding": ("sizes", "costs as much as the longest one"),
    "embedders": ("sizes", "replanned"),
    "trace of timestamps": ("simulate", "read these formats"),
    "why do my replicas flap": ("howto/batching", "ramsis simulate --scaling small"),
}
"""Queries, the page that is to come first, and what it has to say."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built pages."""
    for package in ("sphinx", "myst_parser", "furo", "latex2mathml", "sphinx_copybutton"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("docs")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html",
         "-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "html")],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def text_of(page: Path) -> str:
    """The words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page.read_text())).split())


def test_the_search_gives_the_right_page_first(built):
    node = shutil.which("node")
    if node is None:
        pytest.skip("the search is a script: no node here")
    done = subprocess.run([node, str(ROOT / "tests/search.js"), str(built), *WORDS],
                          capture_output=True, text=True, check=True)
    found = {query: pages[0] for query, pages in zip(WORDS, json.loads(done.stdout), strict=True)}
    assert found == {query: page for query, (page, _) in WORDS.items()}


def test_tables_that_the_build_makes_are_on_their_pages(built):
    for page, words in {
        "architecture": "Bounds for every scheduler", "cluster": "Most batches that a worker runs",
        "evaluation/coverage": "Whole, without figures", "gallery": "Worker-seconds against",
        "options": "Price of a late or dropped request", "placement": "Factor that the latencies",
        "policy-file": "The batch size to run for a batch",
    }.items():
        assert words in text_of(built / f"{page}.html"), page


def test_what_is_found_is_answered_there(built):
    for query, (page, words) in WORDS.items():
        assert words in text_of(built / f"{page}.html"), query


def test_each_command_has_its_options_below_it(built):
    sections = {}
    for section in (built / "cli.html").read_text().split("<h2>")[1:]:
        heading = html.unescape(re.sub(r"<[^>]+>", "", section.partition("<a ")[0]))
        sections[" ".join(word for word in heading.split() if word.islower())] = section
    assert sections.keys() == COMMANDS.keys()
    for path, command in COMMANDS.items():
        shown = set(re.findall(r'<td><p><code[^>]*>(?:<span class="pre">-\w,?</span> )?'
                               r'<span class="pre">(--[a-z-]+)', sections[path]))
        assert shown >= {name for one in command.params if isinstance(one, click.Option)
                         and not one.hidden for name in one.opts if name.startswith("--")}, path


def test_every_public_name_is_in_the_inventory_and_leads_somewhere(built):
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((built / "objects.inv").read_bytes(), uri="").data
    places = {name: item.uri for kind, items in inventory.items() if kind.startswith("py:")
              for name, item in items.items()}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', (built / path).read_text()))
               for path in {uri.partition("#")[0] for uri in places.values()}}
    for module in map(importlib.import_module, MODULES):
        page = (built / f"reference/{module.__name__}.html").read_text()
        for name in module.__all__:
            path, _, anchor = places[f"{module.__name__}.{name}"].partition("#")
            assert anchor in anchors[path], name
            assert f'#{anchor}"' in page, name  # the page lists it with a link


def test_the_pages_need_no_network_and_no_formula_is_raw(built):
    pages = list(built.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//[^"]*"', text), page
        assert not re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//', text), page
        shown = re.sub(r"(?s)<(pre|code|script|title)\b.*?</\1>", "", text)
        assert "$$" not in shown, page
        assert not re.search(r"\\(?:frac|lambda|sum|begin)\b", re.sub(r"<[^>]+>", "", shown)), page
    assert (built / "model.html").read_text().count("<math") > 100
