"""How Sphinx makes the pages of this folder HTML: `make docs`."""

from __future__ import annotations

from typing import Any

import gen
from bench.reference import filled

project = "gen"
author = "gen contributors"
release = gen.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"gen {release}"
html_show_copyright = False
smartquotes = False  # `--shape` is two hyphens, in tables too
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository; tests/host/test_docs.py checks them
autodoc_member_order = "bysource"
autodoc_typehints = "description"


def setup(app: Any) -> None:
    """Fills in what the reference says of families and commands when their pages are read."""
    app.connect("source-read", lambda _app, _name, source: source.__setitem__(0, filled(source[0])))
