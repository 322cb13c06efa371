"""How ``make docs`` builds the pages."""

from sphinx_gallery.sorting import FunctionSortKey

import sktifa

project = "sktifa"
author = "the sktifa developers"
copyright = author
release = version = sktifa.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/README.md"]
templates_path = ["_templates"]
html_static_path = ["_static"]

html_theme = "pydata_sphinx_theme"
html_title = "sktifa"
html_show_sourcelink = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
}
# Pages without a neighbour, and examples, whose lines of code are long.
html_sidebars = dict.fromkeys(
    [
        *("index", "tour", "own_data", "faq", "method", "results", "benchmarks"),
        "auto_examples/*",
    ],
    [],
)

# Headings can be linked to: `faq.md#a-question`.
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]

autosummary_generate = True
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
# The page says whose methods they are; with the class before them they are cut off.
toc_object_entries_show_parents = "hide"
# Methods stand below their class; a table of them besides would say it twice.
numpydoc_show_class_members = False

# From what everybody meets to what some do.
EXAMPLES = (
    "plot_digits.py",
    "plot_table.py",
    "plot_csv.py",
    "plot_information.py",
    "plot_tuning.py",
    "plot_inductive.py",
    "plot_noise.py",
    "plot_imbalance.py",
    "plot_not_here.py",
)
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "within_subsection_order": FunctionSortKey(EXAMPLES.index),
    "backreferences_dir": "generated/backreferences",
    "doc_module": "sktifa",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
}
