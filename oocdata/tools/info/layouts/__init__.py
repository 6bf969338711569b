"""Recognise layouts of public data sets by structure, and write code that opens them for training.

A recogniser is a function from the `Listing` of a file to a `Layout`. It tests a few names, shapes,
dtypes and attributes (of 10,000 groups of the same structure it opens one), and raises if the file
has another layout. `docs/recipes/` has a page for each layout.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from oocdata.errors import SourceError
from oocdata.tools.info.layouts.layout import Layout, Recogniser, expect, listing_of
from oocdata.tools.info.layouts.pictures import PICTURES
from oocdata.tools.info.layouts.robots import ROBOTS
from oocdata.tools.info.layouts.simulations import SIMULATIONS
from oocdata.tools.info.layouts.weather import WEATHER
from oocdata.tools.opening import Opening

__all__ = ["LAYOUTS", "Layout", "recognise"]

LAYOUTS: tuple[Recogniser, ...] = (*ROBOTS, *SIMULATIONS, *WEATHER, *PICTURES)
"""All recognisers; the first that does not raise is taken. Their tests do not overlap."""


_NO_MATCH = (SourceError, LookupError, TypeError, ValueError)
"""Errors of a recogniser for another layout; attributes can hold values of any type."""


def recognise(opening: Opening) -> Layout | None:
    """Return the layout of a file, or of the first file of a glob; None for an unknown layout.

    Read metadata only. Also return None if a key or arguments other than `external` are given, or
    if the file can't be listed; the error is raised when it is opened.
    """
    options = opening.keywords()
    if not {*options} <= {"external"} or not opening.is_paths:
        return None
    target, paths = repr(opening.target), opening.paths()
    with suppress(*_NO_MATCH), listing_of(target, paths, **options) as listing:
        expect(not options or listing.kind == "hdf5")
        for layout in LAYOUTS:
            with suppress(*_NO_MATCH):
                found = layout(listing)
                return replace(found, code=_external(found.code)) if options else found
    return None


def _external(code: tuple[str, ...]) -> tuple[str, ...]:
    """Return lines that also open data in other files."""
    at = code.index("import oocdata as ooc") + 1
    head = ("from functools import partial", *code[:at])
    define = "open_array = partial(ooc.open, external=True)     # also data in other files"
    return (*head, define, *(line.replace("ooc.open(", "open_array(") for line in code[at:]))
