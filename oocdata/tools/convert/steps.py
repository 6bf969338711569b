"""In which boxes a conversion reads and writes, so that each chunk is decoded about once.

Where a run of whole rows fits into memory that is long against the stored chunks, the array is read
in such runs and written as it comes. Where it doesn't (chunks that span all rows but few columns,
Fortran order), no order of reading is good for both sides. Then it goes through a file, as in
rechunker (Abernathey and others, https://rechunker.readthedocs.io): *tiles* of whole stored chunks
are read once, and written there in pieces; *blocks* of whole chunks of the result are read from
there. Tiles and blocks both fit into memory, and their common pieces each lie in one run of bytes.
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
from oocdata.writers.disk import writable
from oocdata.writers.flat import write_at
from oocdata.writers.storage import cells, relative
from oocdata.writers.target import Box

__all__ = [
    "PIECE_BYTES", "Grid", "Scratch", "Steps", "cast_into", "chunk_of", "read_box", "steps_of",
]  # fmt: skip

_MOST_DECODES = 1.5
"""Decodes of a chunk, on average, up to which going through a file costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Grid:
    """An array of some shape cut into boxes of `step`; those at its end are shorter.

    Examples
    --------
    >>> [box[0] for box in Grid((10, 2), (4, 2)).boxes()]
    [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
    """

    shape: tuple[int, ...]
    step: tuple[int, ...]

    def boxes(self) -> Iterator[Box]:
        """Yield the boxes in C order."""
        return cells(tuple(slice(0, length) for length in self.shape), self.step)

    @property
    def most(self) -> int:
        """Elements of the largest box."""
        return prod(map(min, self.step, self.shape))


@dataclass(frozen=True, slots=True)
class Steps:
    """How an array goes from one storage to the other."""

    blocks: Grid  # what is written at a time
    tiles: Grid | None  # what is read at a time where it goes through a file; None: the blocks
    decodes: float  # how often a stored chunk is decoded, on average


def steps_of(
    shape: Sequence[int], itemsize: int, chunk: Sequence[int], unit: Sequence[int], nbytes: int
) -> Steps:
    """Return the boxes in which to read and write an array of shape ``(rows, *element)``.

    A `chunk` is decoded together on the side that is read, a `unit` is written together on the
    other one. Boxes have `nbytes`, unless a unit or a chunk is larger.

    Examples
    --------
    Rows in chunks of some: runs of rows.

    >>> steps_of((1000, 64), 4, (10, 64), (100, 64), 100_000).blocks.step
    (300, 64)

    Each chunk a few columns of all rows: through a file.

    >>> steps = steps_of((1000, 64), 4, (1000, 2), (100, 64), 32_000)
    >>> steps.tiles.step, steps.blocks.step, steps.decodes
    ((1000, 8), (100, 64), 1.0)
    """
    full = tuple(shape)
    if not prod(full):
        return Steps(Grid(full, tuple(unit)), None, 1.0)
    block = _grown(unit, full, nbytes // itemsize)
    together = lcm(chunk[0], unit[0])
    if block[0] > together:  # borders of the blocks are borders of chunks
        block = (block[0] // together * together, *block[1:])
    decodes = 1.0  # blocks that touch a chunk, on average
    for length, stored, step in zip(full, chunk, block, strict=True):
        ends = ((start, min(start + step, length) - 1) for start in range(0, length, step))
        touched = sum(last // stored - first // stored + 1 for first, last in ends)
        decodes *= touched / -(-length // stored)
    if decodes <= _MOST_DECODES:
        return Steps(Grid(full, block), None, decodes)
    return Steps(Grid(full, block), Grid(full, _grown(chunk, full, nbytes // itemsize)), 1.0)


def _grown(unit: Sequence[int], shape: Sequence[int], elements: int) -> tuple[int, ...]:
    """Return whole units together, along the last axis first, up to so many elements."""
    box = list(map(min, unit, shape))
    for axis in range(len(box) - 1, -1, -1):
        others = prod(box) // box[axis]
        times = min(-(-shape[axis] // unit[axis]), max(1, elements // max(1, others * unit[axis])))
        box[axis] = max(box[axis], unit[axis] * times)
    return tuple(box)


class Scratch:
    """Pieces of an array: those of a block lie together, each in one run of bytes.

    Within a block pieces follow in C order, so that where one begins is known without a table.
    Tiles are written and blocks are read.
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

        def one(piece: Box) -> None:
            part = np.ascontiguousarray(values[relative(piece, tile)])
            write_at(self._file, part.reshape(-1).view(np.uint8).data, self._offset(piece))

        with writable(self._path):
            in_threads(self._threads, one, cells(tile, self._blocks.step))

    def read(self, block: Box, out: NDArray[Any]) -> None:
        """Put a block together."""

        def one(piece: Box) -> None:
            shape = [part.stop - part.start for part in piece]
            count, offset = prod(shape), self._offset(piece)
            values = np.fromfile(self._path, self._dtype, count, offset=offset)
            if len(values) < count:
                raise SourceError(
                    "the scratch file must hold what was written to it; it was cut short.",
                    path=self._path,
                )
            out[relative(piece, block)] = values.reshape(shape)

        in_threads(self._threads, one, cells(block, self._tiles.step))

    def _offset(self, piece: Box) -> int:
        """Return the byte at which a piece begins."""
        shape, step = self._blocks.shape, self._blocks.step
        starts = [part.start // long * long for part, long in zip(piece, step, strict=True)]
        block = [
            min(start + long, length) - start
            for start, long, length in zip(starts, step, shape, strict=True)
        ]
        offset = 0
        for axis, part in enumerate(piece):
            inside = prod(one.stop - one.start for one in piece[:axis])
            offset += prod(block[:axis]) * starts[axis] * prod(shape[axis + 1 :])
            offset += inside * (part.start - starts[axis]) * prod(block[axis + 1 :])
        return offset * self._dtype.itemsize

    def save(self) -> None:
        """Wait until the disk has it."""
        with writable(self._path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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
