"""Choose the boxes in which a conversion reads and writes, so that chunks are decoded about once.

If memory holds a run of whole rows that is long compared with the stored chunks, the array is read
and written in such runs. Otherwise (chunks that span all rows but few columns, Fortran order), no
order of reading suits both sides, and the array goes through a scratch file, as in rechunker
(Abernathey and others, https://rechunker.readthedocs.io): *tiles* of whole stored chunks are read
once, and written to the file in pieces; *blocks* of whole chunks of the result are read from it.
Tiles and blocks fit into memory, and the intersection of a tile and a block is one run of bytes.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import FileIO
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.errors import SourceError
from oocdata.threads import in_threads
from oocdata.tools.passes import read_into, read_rows
from oocdata.writers.chunking import default_chunks
from oocdata.writers.disk import write_errors
from oocdata.writers.flat import write_at
from oocdata.writers.storage import relative, split_box
from oocdata.writers.target import Box

__all__ = [
    "PIECE_BYTES", "Grid", "Scratch", "Steps", "cast_into", "chunk_of", "read_box", "steps_of",
]  # fmt: skip

_MOST_DECODES = 1.5
"""Decodes of a chunk, on average, up to which a scratch file costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A regular grid of boxes of shape `step` over an array; boxes at its end are shorter.

    Examples
    --------
    >>> [box[0] for box in Grid((10, 2), (4, 2)).boxes()]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes in C order."""
        return split_box(tuple(slice(0, length) for length in self.shape), self.step)

    @property
    def most(self) -> int:
        """Number of elements of the largest box."""
        return prod(map(min, self.step, self.shape))


@dataclass(frozen=True, slots=True)
class Steps:
    """The boxes of a conversion."""

    blocks: Grid  # boxes to write
    tiles: Grid | None  # boxes to read, with a scratch file; None: blocks are read
    decodes: float  # how often a stored chunk is decoded, on average


def steps_of(
    shape: Sequence[int], itemsize: int, chunk: Sequence[int], unit: Sequence[int], nbytes: int
) -> Steps:
    """Return the boxes in which to read and write an array of shape ``(rows, *element)``.

    The source decodes a `chunk` at a time, and the result is encoded in units of shape `unit`.
    Boxes have `nbytes`, unless a unit or a chunk is larger.

    Examples
    --------
    Chunks of a few rows: blocks of rows.

    >>> steps_of((1000, 64), 4, (10, 64), (100, 64), 100_000).blocks.step
    (300, 64)

    Chunks of a few columns of all rows: tiles, through a scratch file.

    >>> steps = steps_of((1000, 64), 4, (1000, 2), (100, 64), 32_000)
    >>> steps.tiles.step, steps.blocks.step, steps.decodes
    ((1000, 8), (100, 64), 1.0)
    """
    full = tuple(shape)
    if not prod(full):
        return Steps(Grid(full, tuple(unit)), None, 1.0)
    block = _grown(unit, full, nbytes // itemsize)
    aligned = lcm(chunk[0], unit[0])
    if block[0] > aligned:  # let blocks begin where chunks begin
        block = (block[0] // aligned * aligned, *block[1:])
    decodes = 1.0  # blocks that intersect a chunk, on average
    for length, stored, step in zip(full, chunk, block, strict=True):
        ends = ((start, min(start + step, length) - 1) for start in range(0, length, step))
        touched = sum(last // stored - first // stored + 1 for first, last in ends)
        decodes *= touched / -(-length // stored)
    if decodes <= _MOST_DECODES:
        return Steps(Grid(full, block), None, decodes)
    return Steps(Grid(full, block), Grid(full, _grown(chunk, full, nbytes // itemsize)), 1.0)


def _grown(unit: Sequence[int], shape: Sequence[int], elements: int) -> tuple[int, ...]:
    """Return the shape of a box of whole units, grown along the last axis first."""
    box = list(map(min, unit, shape))
    for axis in range(len(box) - 1, -1, -1):
        others = prod(box) // box[axis]
        times = min(-(-shape[axis] // unit[axis]), max(1, elements // max(1, others * unit[axis])))
        box[axis] = max(box[axis], unit[axis] * times)
    return tuple(box)


class Scratch:
    """The scratch file of a conversion: tiles are written, and blocks are read.

    It holds block after block; a block is its pieces (intersections with tiles) in C order, so the
    offset of a piece follows from its position.
    """

    def __init__(
        self,
        path: str,
        blocks: Grid,
        tiles: Grid,
        dtype: np.dtype[Any],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._blocks, self._tiles = blocks, tiles
        self._dtype, self._threads = dtype, threads
        self._path = path
        self._file = FileIO(path, "r+" if os.path.exists(path) else "w+")

    def write(self, tile: Box, values: NDArray[Any]) -> None:
        """Write the pieces of a tile."""

        def write_piece(piece: Box) -> None:
            part = np.ascontiguousarray(values[relative(piece, tile)])
            write_at(self._file, part.reshape(-1).view(np.uint8).data, self._offset(piece))

        with write_errors(self._path):
            in_threads(self._threads, write_piece, split_box(tile, self._blocks.step))

    def read(self, block: Box, out: NDArray[Any]) -> None:
        """Read the pieces of a block."""

        def read_piece(piece: Box) -> None:
            shape = [part.stop - part.start for part in piece]
            count, offset = prod(shape), self._offset(piece)
            values = np.fromfile(self._path, self._dtype, count, offset=offset)
            if len(values) < count:
                raise SourceError(
                    "the scratch file must hold what was written to it; it was cut short.",
                    path=self._path,
                )
            out[relative(piece, block)] = values.reshape(shape)

        in_threads(self._threads, read_piece, split_box(block, self._tiles.step))

    def _offset(self, piece: Box) -> int:
        """Return the byte at which a piece begins."""
        shape, steps = self._blocks.shape, self._blocks.step
        starts = [part.start // step * step for part, step in zip(piece, steps, strict=True)]
        block = [
            min(start + step, length) - start
            for start, step, length in zip(starts, steps, shape, strict=True)
        ]
        offset = 0
        for axis, part in enumerate(piece):
            before = prod(part.stop - part.start for part in piece[:axis])
            offset += prod(block[:axis]) * starts[axis] * prod(shape[axis + 1 :])
            offset += before * (part.start - starts[axis]) * prod(block[axis + 1 :])
        return offset * self._dtype.itemsize

    def save(self) -> None:
        """Sync the file to the disk."""
        with write_errors(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


PIECE_BYTES = 1 << 20
"""Rows larger than this can be read and written in pieces of this size at no cost."""

_PART_BYTES = 8 << 20
_PART_ROWS = 1 << 17
"""The most rows to read in one call, unless a chunk has more."""


def read_box(view: View, box: Box, out: NDArray[Any]) -> None:
    """Read a box of a view, rows first, into a C-contiguous array of its shape and dtype.

    A number that does not fit the view's dtype is a `SourceError`, with file, dataset and row.

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
        part, numbers = out[first : first + rows], range(first, min(first + rows, len(out)))
        if out.dtype == stored.dtype:
            read_into(stored, numbers, part)
        else:
            cast_into(part, read_rows(stored, numbers), stored[numbers.start : numbers.stop])


def cast_into(out: NDArray[Any], values: NDArray[Any], view: View) -> None:
    """Copy numbers into another dtype; they may be rounded to floats, but not change otherwise.

    NumPy's conversion turns 300 into 44 in ``uint8``, NaN and 0.5 into 0, and 1e300 into infinity
    in ``float32``. In a loader that can be corrected later; in a file it is permanent.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        out[...] = values
    if np.can_cast(values.dtype, out.dtype, "safe"):
        return
    is_exact = out.dtype.kind in "biu"
    changed = out != values if is_exact else np.isinf(out) & np.isfinite(values)
    if not changed.any():
        return
    first = tuple(int(place) for place in np.argwhere(changed)[0])
    hint = "Choose a dtype that holds them"
    if is_exact and out.dtype.kind != "b":
        hint += f", or scale and round them into {out.dtype} yourself: oocdata.create writes them"
    path, key, row = _stored_row(view, first[0])
    raise SourceError(
        f"numbers must fit the dtype that they are written in, {out.dtype}; got {values[first]}. "
        f"{hint}.",
        path=path,
        key=key,
        rows=(row,),
    )


def _stored_row(view: View, row: int) -> tuple[str | None, str | None, int]:
    """Return the file and dataset of a row of a view, and the row's number in the dataset."""
    storage = view.storage
    at = int(view.origins(np.asarray(view.rows[row : row + 1], np.int64))[0, view.axes[0]])
    if len(storage.parts) == 1 or storage.parts_axis != view.axes[0]:
        return storage.path, storage.key, at
    part = bisect_right(storage.parts, at) - 1
    path, key = storage.part_names[part]
    return path, key, at - storage.parts[part]


def chunk_of(view: View) -> tuple[int, ...]:
    """Return the shape of a chunk of a view, rows first.

    Without chunks, it is one row, or a piece of a large row.
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
        if chunks[axis] > 1:  # a chunk has several places of this axis, with all rows of each
            return chunks[axis] * prod(len(places) for places in view.grid[place + 1 :])
    return min(rows, len(inner))
