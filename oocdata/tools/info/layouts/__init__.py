"""Layouts of public data sets: known by structure, with the lines that open them for training.

A layout is a function from what a file lists (`Listing`) to a `Layout`. It says what it takes for
granted, of names, shapes, dtypes and attributes, and of few of them: of 10,000 groups that are
alike it opens one. Where something is otherwise it raises, and the file is none of it.
`docs/recipes/` has a page for each.
"""

from __future__ import annotations

from contextlib import suppress

from oocdata.errors import SourceError
from oocdata.tools.info.layouts.layout import Layout, Recogniser, listing_of
from oocdata.tools.info.layouts.pictures import PICTURES
from oocdata.tools.info.layouts.robots import ROBOTS
from oocdata.tools.info.layouts.simulations import SIMULATIONS
from oocdata.tools.info.layouts.weather import WEATHER
from oocdata.tools.opening import Opening

__all__ = ["LAYOUTS", "Layout", "recognise"]

LAYOUTS: tuple[Recogniser, ...] = (*ROBOTS, *SIMULATIONS, *WEATHER, *PICTURES)
"""The first that recognises a file is taken; their tests are strict enough not to overlap."""


_OTHERWISE = (SourceError, LookupError, TypeError, ValueError)
"""What a layout raises where a file is another one; attributes can hold anything."""


def recognise(opening: Opening) -> Layout | None:
    """Return the layout of a file, or of the first file of a glob; None for any other file.

    Reads metadata only. Also None where one array of a file is named, and where the file can't be
    listed: opening it says why.

    Examples
    --------
    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         file["observations"], file["actions"] = [[0.5]] * 9, [[1.0]] * 9
    ...         file["rewards"], file["terminals"] = [0.0] * 9, [False] * 9
    ...     print(recognise(Opening.of(f"{folder}/a.h5")).sentence)
    D4RL: 9 steps
    """
    if opening.given() or not opening.is_paths:
        return None
    with suppress(*_OTHERWISE), listing_of(repr(opening.target), opening.paths()) as listing:
        for layout in LAYOUTS:
            with suppress(*_OTHERWISE):
                return layout(listing)
    return None
