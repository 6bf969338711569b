"""Read rows of varying length, which HDF5 stores in its heap, through HDF5.

Rows of numbers are ragged rows; texts and sequences of uint8 (encoded pictures) are ``bytes``. Few
or short texts are read on opening, into an array of texts of a fixed length. Lengths are known
without the heap (HDF5 File Format Specification, "Data Type - Variable-Length", "Global Heap ID").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from h5py import h5s
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.byte_rows import size_counts
from oocdata.engines.decoding import in_decoding_thread
from oocdata.engines.fields import field_of
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.ragged import row_batches
from oocdata.engines.ragged_rows import RaggedSource
from oocdata.engines.source import Source, Storage, WithStorage
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.hdf5.library import OnDisk, reading
from oocdata.memory import cache_share
from oocdata.threads import cached_property

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""The dataset's entry of a row: its length and its place in the heap (HDF5 file format, "Reference
Count and Heap ID"). The length counts elements; bytes for texts, without their terminator."""

HEAP_BYTES = 24 << 20
"""Memory that HDF5 takes to read its heap: a metadata cache of 2 MiB of it takes 20."""

_MOST_TEXT = 64 << 20
"""Most bytes of texts that are read into memory on opening."""

_PIECE = 1 << 16
"""Rows whose texts or lengths are read at a time."""

PIECE_BYTES = 4 << 20
"""Bytes of rows of numbers that are read at a time, each an array; a larger row is read alone."""

_ARRAY_BYTES = 128
"""Memory of a small array besides its numbers."""


def text_blocks(dataset: Any) -> Iterator[NDArray[Any]]:
    """Yield the texts of an open dataset in blocks of rows; a single text as one row."""
    if not dataset.ndim:
        yield np.array([dataset[()]], object)
        return
    step = max(1, _PIECE // max(1, prod(dataset.shape[1:])))
    for start in range(0, dataset.shape[0], step):
        yield dataset[start : start + step]


def texts_in_memory(
    pieces: Iterable[NDArray[Any]], shape: tuple[int, ...], storage: Storage
) -> MemoryArray | None:
    """Return texts of varying length as an array of dtype ``S``; None if they take too much memory.

    `pieces` are arrays of ``bytes``, to be concatenated along the first axis; iteration stops when
    they are too large.
    """
    # At most half of the cache's budget, so that the other half is left for chunks.
    most, longest, blocks = min(_MOST_TEXT, cache_share() // 2), 1, []
    for texts in pieces:
        longest = max(longest, *map(len, texts.flat)) if texts.size else longest
        if prod(shape) * longest > most:
            return None
        blocks.append(texts.astype(f"S{longest}"))
    array = np.concatenate(blocks or [np.empty(shape, "S1")], dtype=f"S{longest}")
    described = replace(
        storage,
        reading="once, when it was opened: text of varying length",
        chunks=None,
        strides=None,
        table_bytes=array.nbytes,
    )
    return MemoryArray(array.reshape(shape), described)


def varying_rows_error(storage: Storage, shape: tuple[int, ...]) -> UnsupportedDtypeError:
    """Return the error for rows of varying length that can be read neither whole nor by row."""
    return UnsupportedDtypeError(
        "rows of varying length must lie in the HDF5 file itself, opened by its path, or be texts "
        f"of at most {_MOST_TEXT:,} bytes (half of the memory for chunks, if that is less), each "
        f"as long as the longest; got {prod(shape):,} others. Save texts as lines of a text file.",
        path=storage.path,
        key=storage.key,
    )


def varying_rows(target: OnDisk, references: Source, storage: Storage) -> Source:
    """Return the rows of a dataset; `references` is the dataset with dtype `REFERENCE`."""
    at = references.storage()
    storage = replace(
        storage,
        table_bytes=HEAP_BYTES + at.table_bytes,
        cached_whole=() if at.chunks is None else (prod(target.shape) * REFERENCE.itemsize,),
    )
    if target.dtype.hasobject:
        none, counts = size_counts(np.empty(0, int)), map(size_counts, _lengths_of(references))
        described = replace(
            storage,
            reading="each row through h5py, from HDF5's heap",
            row_sizes=tuple(np.sum([none, *counts], axis=0).tolist()),
        )
        return VaryingRows(target, described)
    described = replace(
        storage,
        layout=f"rows of varying length, {storage.layout}",
        reading="whole rows through h5py; how long they are, by one scan that reads "
        f"{REFERENCE.itemsize} bytes a row",
        chunks=None,
        strides=None,
        table_bytes=storage.table_bytes + 4 * target.shape[0],
        scratch_bytes=PIECE_BYTES,
    )
    return VaryingNumbers(target, references, described)


class VaryingRows(WithStorage):
    """Rows of ``bytes``, read from HDF5's heap; a `oocdata.engines.source.Source`."""

    def __init__(self, target: OnDisk, storage: Storage) -> None:
        self.target, self.shape, self.dtype = target, target.shape, target.dtype
        self._storage = storage

    def __reduce__(self) -> Any:
        return VaryingRows, (self.target, self._storage)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        steps = np.indices(extent.lengths).reshape(len(self.shape), -1).T * extent.strides
        rows = _read_heap(self.target, (origins[:, None] + steps).reshape(-1, len(self.shape)))
        found = np.empty(len(rows), object)
        found[:] = [row if isinstance(row, bytes) else row.tobytes() for row in rows]
        out[...] = found.reshape(out.shape)


class VaryingNumbers(WithStorage, RaggedSource):
    """Ragged rows of numbers of a dataset with one axis; a `Source`.

    `references` is the dataset with dtype `REFERENCE`.
    """

    inner: tuple[int, ...] = ()
    """Shape of an element of a row: a number."""

    def __init__(self, target: OnDisk, references: Source, storage: Storage) -> None:
        self.target, self._references, self._storage = target, references, storage
        self.shape, self.dtype = target.shape, target.dtype

    def __reduce__(self) -> Any:
        return VaryingNumbers, (self.target, self._references, self._storage)

    @cached_property
    def _lengths(self) -> NDArray[np.uint32]:
        return np.concatenate([np.empty(0, np.uint32), *_lengths_of(self._references)])

    def locate(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return the lengths of rows, each from its own beginning; the first call reads all."""
        return np.zeros_like(rows), self._lengths[rows].astype(np.int64)

    def read_rows(
        self, rows: Ints, starts: Ints, counts: Ints, out: NDArray[Any], targets: Ints
    ) -> None:
        """Read a run of each row; see `oocdata.engines.ragged_rows.RaggedSource.read_rows`."""
        filled = np.flatnonzero(counts)
        sizes = self._lengths[rows[filled]].astype(np.int64) * self.dtype.itemsize + _ARRAY_BYTES
        for piece in row_batches(sizes, PIECE_BYTES):
            which = filled[piece]
            arrays = _read_heap(self.target, rows[which, None])
            places = (numbers[which].tolist() for numbers in (starts, counts, targets))
            for array, start, count, target in zip(arrays, *places, strict=True):
                out[target : target + count] = array[start : start + count]


def _read_heap(target: OnDisk, points: Ints) -> list[Any]:
    """Return the rows at points of a dataset, shape (n, N), in any order and with repeats."""
    if not len(points):
        return []
    # Each row once, in the order of storage, which suits the heap's cache.
    numbers = np.ravel_multi_index(tuple(points.T), target.shape)
    unique, inverse = np.unique(numbers, return_inverse=True)
    unique_points = np.stack(np.unravel_index(unique, target.shape), axis=1)

    def read() -> NDArray[Any]:
        with reading(target, unique_points[:, target.rules.axis]) as dataset:
            space = dataset.id.get_space()
            space.select_elements(unique_points)
            rows = np.empty(len(unique_points), dataset.dtype)
            dataset.id.read(h5s.create_simple(rows.shape), space, rows)
            return rows

    # In few threads, because malloc keeps what HDF5 freed for the thread that used it.
    rows = in_decoding_thread(read)
    return [rows[number] for number in inverse.tolist()]


def _lengths_of(references: Source) -> Iterator[NDArray[Any]]:
    lengths = field_of(references, "length")
    count, *rest = lengths.shape
    step = max(1, _PIECE // max(1, prod(rest)))
    for start in range(0, count, step):
        block = np.empty((1, min(step, count - start), *rest), np.uint32)
        lengths.read(np.array([[start, *[0] * len(rest)]]), Extent.of(block.shape[1:]), block)
        yield block.ravel()
