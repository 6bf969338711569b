"""Write code for a file of several arrays that is no known layout: those of the same rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from oocdata.errors import SourceError
from oocdata.formats.dimensions import data_variables, is_time, packing
from oocdata.formats.tree import Array
from oocdata.tools.info.layouts.layout import Layout, Listing, lines, listed, listing_of, split
from oocdata.tools.opening import Opening

_FEWEST_ROWS = 5
"""Arrays of fewer rows may have equally many by chance."""

_MOST_NAMED = 6

_FEWEST_OF_A_CLASS = 10
"""Rows of a class; a tenth of them is at least one."""

_MOST_LABELS = 1_000_000
"""Labels that are read, to find out whether they are sorted."""

_PARTS = {
    "train": "train training", "val": "val valid validation dev", "test": "test testing",
}  # fmt: skip
_PART_OF = {word: part for part, words in _PARTS.items() for word in words.split()}
"""The part of a split that a word of a name means, as in x_train or test/images."""

_Arrays = Mapping[str, Array]


def arrays_of_the_same_rows(opening: Opening, names: Sequence[str]) -> Layout | None:
    """Return code that opens those of the named arrays of a file that have the same rows.

    Arrays whose names have the words train and test are parts of a split. Otherwise arrays have the
    same rows as the largest one if the first axis is as long, and has the same name. Without two
    such arrays, each of several files is one element, if no axis has a name; else the result is
    None.
    """
    with suppress(SourceError), listing_of(repr(opening.target), opening.paths()) as listing:
        found = {name.strip("/"): listing.array(name) for name in names}
        numeric = {name: array for name, array in found.items() if array.is_numeric}
        data = [name for name in data_variables(numeric) if not is_time(numeric[name].attributes)]
        arrays = {name: numeric[name] for name in data}
        if arrays and listing.files == 1:
            return _parts(listing.target, arrays) or _rows(opening, listing, arrays)
        if any(one.dimensions for one in arrays.values()):
            return _rows(opening, listing, arrays)
        numbers = {
            name: one
            for name, one in found.items()
            if not one.shape and replace(one, shape=(1,)).is_numeric
        }
        if listing.files > 1 and len(arrays) + len(numbers) > 1:
            rows = None if numbers else _rows(opening, listing, arrays)
            return rows or _samples(listing, {**arrays, **numbers})
    return None


def _samples(listing: Listing, arrays: _Arrays) -> Layout:
    """Return code for files of one sample each."""
    code = f"path = {listing.target}\n"
    code += f"{listed('names', arrays)}\n" if len(arrays) > 2 else ""
    code += f"samples = {_together(arrays, 'names', ', axis=None')}\n"
    code += split("samples", listing.files)
    return Layout(
        "A sample per file",
        f"{listing.files:,} files of {_named(arrays)}",
        lines(code, _batch(arrays)),
        (*arrays,),
        single_rows=True,
    )


def _parts(target: str, arrays: _Arrays) -> Layout | None:
    """Return code for arrays that are split already, such as x_train, y_train, x_test, y_test."""
    parts: dict[str, dict[str, Array]] = {}
    kinds: dict[str, set[str]] = {}
    for name, array in arrays.items():
        words = re.split(r"[_\W]+", name.lower())
        for part in {_PART_OF[word] for word in words if word in _PART_OF}:
            parts.setdefault(part, {})[name] = array
            kinds.setdefault(part, set()).add("_".join(w for w in words if w not in _PART_OF))
    rows = {part: {array.shape[0] for array in each.values()} for part, each in parts.items()}
    same = all(kind == kinds.get("train") for kind in kinds.values())
    if len(parts) < 2 or not same or max(map(len, rows.values())) > 1:
        return None
    code = [f"path = {target}"]
    code += [f"{part} = {_together(parts[part])}" for part in _PARTS if part in parts]
    summary = ", ".join(f"{part} of {rows[part].pop():,} rows" for part in _PARTS if part in parts)
    train = parts["train"]
    return Layout("Parts of a split", summary, lines("\n".join(code), _batch(train)), (*train,))


def _rows(opening: Opening, listing: Listing, arrays: _Arrays) -> Layout | None:
    """Return code for arrays with the rows of the largest one, of those with most named axes."""
    largest = max(
        arrays.values(), key=lambda one: (len(one.dimensions), one.shape[0] * one.row_bytes)
    )
    axis = largest.shape[0], largest.dimensions[:1]
    same = {name: one for name, one in arrays.items() if (one.shape[0], one.dimensions[:1]) == axis}
    count = largest.shape[0]
    dated = len(largest.dimensions) > 2 and listing.files > 1  # a file may be one step
    if len(same) < 2 or (count < _FEWEST_ROWS and not dated):
        return None
    code, batch = f"path = {listing.target}\n", _batch(same)
    code += f"{listed('names', same)}\n" if len(same) > 2 else ""
    fields = len({(array.shape, array.dimensions) for array in same.values()}) == 1
    if fields and len(largest.dimensions) > 2:
        decode = ", decode=True" if _is_packed(same) else ""
        names = "names" if len(same) > 2 else [*same]
        code += f"fields = ooc.stack([ooc.open(path, name{decode}) for name in {names}])\n"
        series = "" if listing.files == 1 else f"episodes={'files' if count > 1 else 'none'!r}"
        code += f"pairs = fields.next_frame({series})\n" + split("pairs", count * listing.files)
        batch = "x, y"
    elif len(same) == 2 and _are_sorted(
        opening, labels := min(same, key=lambda name: same[name].row_bytes)
    ):
        code += f"labels = ooc.open(path, {labels!r})     # one class after the other\n"
        code += split(_together(same), count, ", stratify=labels")
    else:
        code += split(_together(same, "names"), count)
    summary = f"{_named(same)}, {count:,} row{'s' * (count > 1)}"
    if listing.files > 1:
        summary += f" in the first of {listing.files:,} files; axis=None makes each file one row"
    return Layout("Arrays of the same rows", summary, lines(code, batch), (*same,))


def _are_sorted(opening: Opening, labels: str) -> bool:
    """Return whether rows are in the order of their classes, so that a range lacks some."""
    view = replace(opening, key=labels).view()
    if view.dtype.kind not in "iub" or view.element or len(view) > _MOST_LABELS:
        return False
    read = np.asarray(view)
    _, counts = np.unique(read, return_counts=True)
    changes = np.count_nonzero(read[1:] != read[:-1])
    return bool(changes == len(counts) - 1 > 0 and counts.min() >= _FEWEST_OF_A_CLASS)


def _named(arrays: _Arrays) -> str:
    return ", ".join(arrays) if len(arrays) <= _MOST_NAMED else f"{len(arrays)} arrays"


def _together(arrays: _Arrays, names: str = "", more: str = "") -> str:
    """Return the code of one array, of a pair with the larger rows first, or of a dict of more."""
    more += ", decode=True" if _is_packed(arrays) else ""
    opened = [f"ooc.open(path, {name!r}{more})" for name in _by_size(arrays)]
    if len(arrays) > 2:
        return f"ooc.zip({{name: ooc.open(path, name{more}) for name in {names or [*arrays]}}})"
    return opened[0] if len(opened) == 1 else f"ooc.zip({', '.join(opened)})"


def _by_size(arrays: _Arrays) -> list[str]:
    """Return the names, that of the array with the largest rows first."""
    return sorted(arrays, key=lambda name: -arrays[name].row_bytes)


def _batch(arrays: _Arrays) -> str:
    """Return the names of what a batch of `_together` holds."""
    return "x" if len(arrays) == 1 else "x, y" if len(arrays) == 2 else "batch"


def _is_packed(arrays: _Arrays) -> bool:
    """Return whether the attributes of an array ask for `decode`."""
    return any(packing(array.attributes) for array in arrays.values())
