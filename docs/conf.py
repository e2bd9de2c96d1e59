"""The documentation as a site: ``make docs`` builds it into build/site.

Sphinx with the theme of scikit-learn's and pandas' pages: the docstrings' cross-references are its own, readers
know their way about, and it is maintained. Nothing is fetched when a page is read.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import docstrings
import reference_pages

import privfed

project = "privfed"
author = "the privfed authors"
version = release = privfed.__version__

extensions = [
    "myst_parser",  # the pages are Markdown, which reads well in the repository too
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["examples/*", "templates/*"]
myst_heading_anchors = 4
# A role or a fence of another language than Sphinx's is shown as it stands.
suppress_warnings = [
    "myst.header",
    "config.cache",
    "ref.python",
]  # a field named as a type is no ambiguity

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e6,
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
templates_path = ["templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]  # narrow screens, and print
html_title = f"privfed {version}"
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "navbar_end": ["versions", "theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copyright = "the privfed authors, Apache License 2.0"

reference_pages.write(Path(__file__).resolve().parent / "reference")


def skipped(app, what, name, obj, skip, options):  # type: ignore[no-untyped-def]
    """What scikit-learn adds to every estimator is on its own pages."""
    return skip or name.endswith(("_request", "metadata_routing")) or None


def setup(app):  # type: ignore[no-untyped-def]
    app.connect("autodoc-process-docstring", docstrings.kept, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", docstrings.plain)
    app.connect("autodoc-skip-member", skipped)
