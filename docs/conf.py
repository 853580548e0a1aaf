"""Settings of the documentation site: `make docs`.

Pages that list parts of the code are written by `docs/generate.py` when the site is built. Notebooks are shown as they are
committed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generate

import sinkjax

project = "sinkjax"
author = copyright = "The sinkjax developers"
version = release = sinkjax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"
default_role = "code"

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80
napoleon_use_ivar = True

html_theme = "sphinx_book_theme"
html_title = f"sinkjax {release}"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"show_navbar_depth": 1, "use_download_button": False, "use_fullscreen_button": False}
html_static_path = ["static"]
html_js_files = ["sortable.js"]
html_css_files = ["site.css"]

generate.write_all(Path(__file__).parent / "generated")

MARKUP = re.compile(r"(`[^`\n]*`)|([*|]|\b_(?=\s))")


def plain(app: Any, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with names in backticks: |h| and * are not markup."""
    lines[:] = [MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", line) for line in lines]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain, priority=100)
