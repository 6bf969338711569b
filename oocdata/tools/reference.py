"""The reference of the public names as a static site, made from their docstrings by pdoc.

``python -m oocdata.tools.reference [FOLDER]`` writes it, by default into ``build/reference``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from oocdata.errors import MissingDependencyError

__all__ = ["FIRST", "write_reference"]

FIRST = ("open", "View", "Windows", "zip", "Zip", "Map", "Dataset", "Loader")
"""What the page begins with, in the order in which it is met; the rest follows by the alphabet."""

_MODULES = ("oocdata", "oocdata.testing")


def write_reference(folder: Path) -> Path:
    """Write the site.

    For a process of its own: every public name is imported, and pdoc is set up for the site.

    Parameters
    ----------
    folder : pathlib.Path
        Made if it is not there; what is there under the same names is replaced.

    Returns
    -------
    pathlib.Path
        The page to begin with.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If pdoc is not installed.
    """
    try:
        import pdoc
    except ImportError as error:
        raise MissingDependencyError(
            f"the reference needs pdoc; {error}. Install it: pip install pdoc."
        ) from error
    public: Any = importlib.import_module("oocdata")  # above this floor, and what is written about
    names = sorted(public.__all__, key=_place)
    for name in names:
        # pdoc looks into the module, where names that are imported when asked for are not yet.
        setattr(public, name, getattr(public, name))
    public.__all__[:] = names
    pdoc.render.configure(
        docformat="numpy", show_source=False, footer_text=f"oocdata {public.__version__}"
    )
    pdoc.pdoc(*_MODULES, output_directory=folder)
    return folder / "index.html"


def _place(name: str) -> tuple[Any, ...]:
    return (FIRST.index(name), "") if name in FIRST else (len(FIRST), name.lower())


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    page = write_reference(Path(sys.argv[1] if len(sys.argv) > 1 else "build/reference"))
    print(f"Written: {page}")
