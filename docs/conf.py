"""How Sphinx builds the site: ``python -m sphinx -EW --keep-going docs build/site``."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import oocdata

project = "oocdata"
author = "the authors of oocdata"
copyright = "2026, the authors of oocdata. Apache-2.0"  # noqa: A001  # Sphinx's name
version = release = oocdata.__version__

extensions = ["myst_parser", "numpydoc", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# A link or a role that leads nowhere is a warning, and `-W` makes warnings errors. Single backticks
# in docstrings are names of any kind, also of arguments: only those are not checked.
nitpicky = True
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", ".*")]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types
numpydoc_show_class_members = False
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output of doctests are not copied

html_theme = "pydata_sphinx_theme"
html_title = "oocdata"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
_ALONE = ("index", "quickstart", "shuffling", "performance", "reliability")
html_sidebars = {page: [] for page in _ALONE}  # they have no section of their own
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "github-dark",
}


def add_help(app, page, source):
    """Put the help of every command onto the page of commands, as a terminal shows it."""
    if page != "reference/commands":
        return
    from typer.testing import CliRunner

    from oocdata.cli import app as oocdata_command

    def help_of(*command):
        run = CliRunner().invoke(oocdata_command, [*command, "--help"], prog_name="oocdata")
        return f"```text\n{run.output.strip()}\n```\n"

    commands = [one.name or one.callback.__name__ for one in oocdata_command.registered_commands]
    source[0] += help_of() + "".join(f"\n## oocdata {name}\n\n{help_of(name)}" for name in commands)


def setup(app):
    """Tell Sphinx what this file adds."""
    app.connect("source-read", add_help)
