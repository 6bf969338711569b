"""Write code for a file of several arrays that is no known layout: those of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from oocdata.errors import SourceError
from oocdata.formats.dimensions import data_variables, is_time, packing
from oocdata.tools.info.layouts.layout import Layout, lines, listed, listing_of, split
from oocdata.tools.opening import Opening

_FEWEST_ROWS = 5
"""Arrays of fewer rows may have equally many by chance."""


def arrays_of_the_same_rows(opening: Opening, names: Sequence[str]) -> Layout | None:
    """Return code that zips the named arrays that have the rows of the largest one, if there are.

    Rows are the same if the first axis is as long, and has the same name. A pair of another number
    of rows, else like this one, is for validation if it says so, else for testing.
    """
    with suppress(SourceError), listing_of(repr(opening.target), opening.paths()) as listing:
        found = listing.arrays("", [name.strip("/") for name in names])
        found = {name: array for name, array in found.items() if array.is_numeric}
        data = [name for name in data_variables(found) if not is_time(found[name].attributes)]
        if not data:
            return None
        largest = max((found[name] for name in data), key=lambda one: one.shape[0] * one.row_bytes)
        count, axis = largest.shape[0], largest.dimensions[:1]
        same = [
            name for name in data
            if found[name].shape[0] == count and found[name].dimensions[:1] == axis
        ]  # fmt: skip
        if len(same) < 2 or count < _FEWEST_ROWS:
            return None
        same.sort(key=lambda name: -found[name].row_bytes)
        decode = ", decode=True" if any(packing(found[name].attributes) for name in same) else ""
        code = f"path = {listing.target}\n"
        held_out = dict[str, str]()
        if len(same) == 2:

            def paired(names: Sequence[str]) -> str:
                return f"ooc.zip({', '.join(f'ooc.open(path, {n!r}{decode})' for n in names)})"

            together, batch = paired(same), "x, y"
            for rows in {found[name].shape[0] for name in data} - {count}:
                pair = [name for name in data if found[name].shape[0] == rows]
                pair.sort(key=lambda name: -found[name].row_bytes)
                one, other = (
                    [(found[name].shape[1:], found[name].dtype) for name in both]
                    for both in (pair, same)
                )
                if one == other:
                    held_out["val" if "val" in pair[0].lower() else "test"] = paired(pair)
        else:
            code += f"{listed('names', same)}\n"
            together = f"ooc.zip({{name: ooc.open(path, name{decode}) for name in names}})"
            batch = "batch"
        summary = f"{len(same)} arrays, {listing.count_text}{count:,} rows"
        code += split(together, 0 if "val" in held_out else count)
        code += "".join(f"\n{part} = {pair}" for part, pair in held_out.items())
        return Layout("Arrays of the same rows", summary, lines(code, batch), tuple(same))
    return None
