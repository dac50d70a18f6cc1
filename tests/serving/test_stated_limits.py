"""SECURITY.md states the server's limits as its options have them."""

import re
from typing import Any

import click

from ramsis.cli.serving.serve import serve_command
from tests.serving.servers import ROOT

_ROW = re.compile(r"^\| [^|]+ \| `(--[\w-]+)` \| ([^|]+) \|$", re.MULTILINE)


def test_the_limits_in_the_security_page_are_those_of_the_options():
    options: dict[str, Any] = {name: one.default for one in serve_command.params
                               if isinstance(one, click.Option) for name in one.opts}
    stated = dict(_ROW.findall((ROOT / "SECURITY.md").read_text(encoding="utf-8")))
    assert len(stated) == 12
    for name, text in stated.items():
        if text == "none":
            assert not isinstance(options[name], int | float), name
        else:
            assert options[name] == float(text.partition(" ")[0]), name
