"""Rows of varying length: HDF5 keeps them in a heap, where nothing but HDF5 finds them.

Rows of numbers are located rows. Texts, and sequences of uint8 (pictures as they are encoded), are
delivered as ``bytes``, each read when it is asked for. Texts that are few or short (labels, names
of rows) are read as a whole when they are opened, and kept as text of a fixed length, which all
that takes arrays can take.

How long rows are needs no heap: what the dataset holds for a row begins with its length (HDF5 File
Format Specification, version 3.0, "Data Type - Variable-Length", "Global Heap ID").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from h5py import h5s
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.byte_rows import size_counts
from oocdata.engines.fields import field_of
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.ragged import pieces
from oocdata.engines.ragged_rows import Located, Locating
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError, UnsupportedDtypeError
from oocdata.formats.hdf5.library import OnDisk, reading
from oocdata.memory import cache_share

__all__ = ["REFERENCE", "VaryingNumbers", "VaryingRows", "kept_texts", "not_kept", "texts_of"]

Ints = NDArray[np.int64]

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""What lies in a dataset for each row (HDF5 file format, "Reference Count and Heap ID").

The length is in bytes: of texts without the end, and as both uint8 and int8 take one each.
"""

_MOST_TEXT = 64 << 20
"""Bytes of texts that are kept."""

_PIECE = 1 << 16
"""Rows that are looked at together."""

_PIECE_BYTES = 4 << 20
"""Bytes of rows that are read at a time, unless a row is larger."""


def texts_of(dataset: Any) -> Iterator[NDArray[Any]]:
    """Yield the texts of an open dataset, some rows at a time."""
    step = max(1, _PIECE // max(1, prod(dataset.shape[1:])))
    for start in range(0, dataset.shape[0], step):
        yield dataset[start : start + step]


def kept_texts(
    pieces: Iterable[NDArray[Any]], shape: tuple[int, ...], storage: Storage
) -> MemoryArray | None:
    """Keep texts of varying length as UTF-8 bytes of dtype ``S``; None if they are too much.

    `pieces` hold ``bytes``, along the first axis; no more are asked for than can be kept.
    """
    # A half of what may be kept; the other is for chunks.
    most, longest, found = min(_MOST_TEXT, cache_share() // 2), 1, []
    if prod(shape) > most:
        return None
    for texts in pieces:
        longest = max(longest, *map(len, texts.flat)) if texts.size else longest
        if prod(shape) * longest > most:
            return None
        found.append(texts.astype(f"S{longest}"))
    array = np.concatenate(found or [np.empty(shape, "S1")], dtype=f"S{longest}")
    described = replace(
        storage,
        reading="once, when it was opened: text of varying length",
        chunks=None,
        strides=None,
        table_bytes=array.nbytes,
    )
    return MemoryArray(array.reshape(shape), described)


def not_kept(storage: Storage, shape: tuple[int, ...]) -> UnsupportedDtypeError:
    """Return the error of rows of varying length that are neither kept nor read by row."""
    return UnsupportedDtypeError(
        "rows of varying length must lie in the HDF5 file itself, opened by its path, or be texts "
        f"of at most {_MOST_TEXT:,} bytes (half of the memory for chunks, if that is less), each "
        f"as long as the longest; got {prod(shape):,} others. Save texts as lines of a text file.",
        path=storage.path,
        key=storage.key,
    )


class VaryingRows:
    """Rows of ``bytes`` that HDF5 reads from its heap; a `oocdata.engines.source.Source`."""

    def __init__(self, target: OnDisk, storage: Storage) -> None:
        self.target, self.shape, self.dtype = target, target.shape, target.dtype
        self._storage = storage

    @classmethod
    def of(cls, target: OnDisk, references: Source, storage: Storage) -> VaryingRows:
        """Return the rows of which the dataset itself holds these references, see `REFERENCE`."""
        none, counts = size_counts(np.empty(0, int)), map(size_counts, _lengths_of(references))
        described = replace(
            storage,
            reading="each row through h5py, from HDF5's heap",
            row_sizes=tuple(np.sum([none, *counts], axis=0).tolist()),
        )
        return cls(target, described)

    def __reduce__(self) -> Any:
        return VaryingRows, (self.target, self._storage)

    def storage(self) -> Storage:
        """Return how the rows are stored."""
        return self._storage

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        steps = np.indices(extent.lengths).reshape(len(self.shape), -1).T * extent.strides
        read = _read_heap(self.target, (origins[:, None] + steps).reshape(-1, len(self.shape)))
        found = np.empty(len(read), object)
        found[:] = [one if isinstance(one, bytes) else one.tobytes() for one in read]
        out[...] = found.reshape(out.shape)


class VaryingNumbers(Locating):
    """Rows of varying length of one dataset of one axis; a `Source`.

    `references` is the dataset as `REFERENCE`.
    """

    inner: tuple[int, ...] = ()
    """A place of a row is a number."""

    def __init__(self, target: OnDisk, references: Source, storage: Storage) -> None:
        self.target, self._references, self._storage = target, references, storage
        self.shape, self.dtype = target.shape, target.dtype
        self._lengths: NDArray[np.uint32] | None = None

    def __reduce__(self) -> Any:
        return VaryingNumbers, (self.target, self._references, self._storage)

    def storage(self) -> Storage:
        """Return how the dataset is stored."""
        return self._storage

    def locate(self, rows: Ints) -> Located:
        """Return rows whose lengths are known; all lengths are read the first time."""
        # Not a cached property, whose lock a thread may hold when the process is forked.
        if self._lengths is None:
            self._lengths = np.concatenate([np.empty(0, np.uint32), *_lengths_of(self._references)])
        lengths = self._lengths[rows].astype(np.int64)
        return Located(lengths, self.dtype, partial(self._read, rows, lengths))

    def _read(
        self, rows: Ints, lengths: Ints, firsts: Ints, counts: Ints, out: NDArray[Any]
    ) -> None:
        """Write a run of each row, one after the other; see `Located`."""
        own = np.flatnonzero(counts)
        if not len(own):
            return
        rows, lengths, firsts, counts = (each[own] for each in (rows, lengths, firsts, counts))
        done = 0
        for some in pieces(lengths * out.itemsize, _PIECE_BYTES):
            arrays = _read_heap(self.target, rows[some][:, None])
            wrong = np.array([len(array) for array in arrays]) != lengths[some]
            if wrong.any():
                raise SourceError(
                    "rows must be as long as the dataset says; some are not. They are damaged, or "
                    "were written over.",
                    path=self._storage.path,
                    key=self._storage.key,
                    rows=rows[some][wrong],
                )
            runs = zip(arrays, firsts[some].tolist(), counts[some].tolist(), strict=True)
            parts = [array[first : first + count] for array, first, count in runs]
            before, done = done, done + int(counts[some].sum())
            np.concatenate(parts, out=out[before:done])


def _read_heap(target: OnDisk, points: Ints) -> list[Any]:
    """Return what HDF5 finds in the heap for places of a dataset, shape (n, N), in any order."""
    if not len(points):
        return []
    # In their order, which the heap's cache likes, and each once.
    numbers = np.ravel_multi_index(tuple(points.T), target.shape)
    unique, which = np.unique(numbers, return_inverse=True)
    wanted = np.stack(np.unravel_index(unique, target.shape), axis=1)
    with reading(target, wanted[:, target.rules.axis]) as dataset:
        space = dataset.id.get_space()
        space.select_elements(wanted)
        found = np.empty(len(wanted), dataset.dtype)
        dataset.id.read(h5s.create_simple(found.shape), space, found)
    return [found[place] for place in which.tolist()]


def _lengths_of(references: Source) -> Iterator[NDArray[Any]]:
    """Yield the lengths that a dataset holds for its rows, some of them at a time."""
    lengths = field_of(references, "length")
    count, *rest = lengths.shape
    step = max(1, _PIECE // max(1, prod(rest)))
    for start in range(0, count, step):
        found = np.empty((1, min(step, count - start), *rest), np.uint32)
        lengths.read(np.array([[start, *[0] * len(rest)]]), Extent.of(found.shape[1:]), found)
        yield found.ravel()
