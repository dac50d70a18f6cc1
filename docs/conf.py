"""Sphinx configuration: Markdown pages (MyST) and the docstrings of the public names."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "ramsis"
author = "The ramsis developers"
copyright = "The ramsis developers, MIT licence"  # noqa: A001 - Sphinx's name for it
release = version = _PROJECT["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses are described once, in the class
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"ramsis {release}"
html_show_sphinx = False
