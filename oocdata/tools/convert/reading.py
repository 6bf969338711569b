"""Boxes of a view, read through its source in a bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import SourceError
from oocdata.tools.passes import read_into, read_rows
from oocdata.writers.chunking import default_chunks
from oocdata.writers.target import Box

__all__ = ["PIECE_BYTES", "cast_into", "chunk_of", "read_box"]

PIECE_BYTES = 1 << 20
"""Bytes of a row from which on it is as well read or written in pieces of as many."""

_PART_BYTES = 8 << 20
_PART_ROWS = 1 << 17
"""Read in one call, unless a chunk has more."""


def read_box(view: View, box: Box, out: NDArray[Any]) -> None:
    """Read a box of a view, rows first, into an array of its shape and dtype, C-contiguous.

    Numbers that don't fit the view's dtype are a `SourceError`, with file, dataset and row.

    Examples
    --------
    >>> import oocdata as ooc
    >>> out = np.empty((2, 1), "u1")
    >>> view = ooc.open(np.arange(12).reshape(4, 3))[::-1, 1:].astype("u1")
    >>> read_box(view, (slice(1, 3), slice(0, 1)), out)
    >>> out.tolist()
    [[7], [4]]
    """
    if out.size == 0:
        return
    stored = replace(view, dtype=view.source.dtype)[box]
    rows = max(1, min(_PART_ROWS, _PART_BYTES // (out[0].size * stored.dtype.itemsize)))
    chunk = chunk_of(view)[0]
    rows = max(chunk, rows - rows % chunk)
    for first in range(0, len(out), rows):
        part, some = out[first : first + rows], range(first, min(first + rows, len(out)))
        if out.dtype == stored.dtype:
            read_into(stored, some, part)
        else:
            cast_into(part, read_rows(stored, some), stored[some.start : some.stop])


def cast_into(out: NDArray[Any], values: NDArray[Any], view: View) -> None:
    """Copy numbers into another dtype: rounded where they must be, never turned into others.

    NumPy's own conversion makes 44 of 300 in ``uint8``, 0 of NaN or 0.5, and infinity of 1e300 in
    ``float32``. A loader may do so, because it is asked again tomorrow; a file keeps it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        out[...] = values
    if np.can_cast(values.dtype, out.dtype, "safe"):
        return
    exact = out.dtype.kind in "biu"
    wrong = out != values if exact else np.isinf(out) & np.isfinite(values)
    if not wrong.any():
        return
    first = tuple(int(place) for place in np.argwhere(wrong)[0])
    hint = "Choose a dtype that holds them"
    if exact and out.dtype.kind != "b":
        hint += f", or scale and round them into {out.dtype} yourself: oocdata.create writes them"
    path, key, row = _place_of(view, first[0])
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )


def _place_of(view: View, row: int) -> tuple[str | None, str | None, int]:
    """Return the file and dataset in which a row of a view lies, and the row's place there."""
    storage = view.storage
    at = int(view.origins(np.asarray(view.rows[row : row + 1], np.int64))[0, view.axes[0]])
    if len(storage.parts) == 1 or storage.parts_axis != view.axes[0]:
        return storage.path, storage.key, at
    part = bisect_right(storage.parts, at) - 1
    path, key = storage.part_names[part]
    return path, key, at - storage.parts[part]


def chunk_of(view: View) -> tuple[int, ...]:
    """Return what of a view is decoded together, rows first.

    One row, or a piece of it, where every byte has an address.
    """
    chunks = view.storage.chunks
    if chunks is None:
        return (1, *default_chunks(view.shape, view.dtype.itemsize, largest=PIECE_BYTES)[1:])
    element = [-(-chunks[at] // view.extent.strides[at]) for at in view.order]
    lengths = [_chunk_rows(view, chunks), *element]
    return tuple(max(1, min(n, length)) for n, length in zip(lengths, view.shape, strict=True))


def _chunk_rows(view: View, chunks: tuple[int, ...]) -> int:
    inner = view.grid[-1]
    rows = -(-chunks[view.axes[-1]] // abs(inner.step))
    if len(view.grid) == 1:
        return -(-rows // abs(view.rows.step)) if isinstance(view.rows, range) else rows
    for place, axis in enumerate(view.axes[:-1]):
        if chunks[axis] > 1:  # it holds several outer places, with all rows of each
            return chunks[axis] * prod(len(places) for places in view.grid[place + 1 :])
    return min(rows, len(inner))
