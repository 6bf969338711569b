"""Rows of an uncompressed Zarr array: each at a known offset of the file that holds its chunk.

Nothing need be decoded, so nothing but the rows asked for is read, straight into the batch, from as
many files as they lie in: a chunk each, or a shard of several with an index of where they start.
Where a chunk is not there, or not as it must be, whoever decodes whole chunks reads those rows
instead: it fills what may be filled, and tells what is wrong.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.index import Cut
from oocdata.sources.adapt import cut_source, layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.handles import Descriptor, handle
from oocdata.sources.pieces import Pieces, cut_strides, deliver, pieces_of
from oocdata.sources.requests import UnfinishedError, join, read_runs
from oocdata.sources.slots import chunk_budget
from oocdata.sources.source import Annotations, Layout, Source
from oocdata.sources.zarr.store import Folder
from oocdata.sources.zarr.store import join as join_names
from oocdata.sources.zarr.stored import StoredArray
from oocdata.threads import uninterrupted

__all__ = ["ChunkFiles", "plain_rows"]

_LARGE = 16384
"""Bytes of a row from which on reading it alone, in a file of its own, costs less than decoding
whole chunks in the order that is best for them."""

_FILES_AT_ONCE = 64
"""Files that a call holds open at a time."""

_MOST_OPEN = 4096
"""Files kept open, where a process may have four times as many; else a quarter of what it may."""


@dataclass(frozen=True, slots=True)
class ChunkFiles:
    """Rows of an array in a folder whose chunks are files of nothing but elements.

    Parameters
    ----------
    stored : StoredArray
    whole : Source
        The same rows, read as whole chunks.
    elements : numpy.dtype
        As stored, with their byte order.
    chunk_bytes : int
        Of each chunk.
    shape : tuple of int
        ``(rows, *element)``.
    strides : tuple of int
        Bytes from one place to the next within a chunk, for each axis of `shape`.
    offset : int
        Byte offset of element (0, …, 0) of a chunk.
    """

    stored: StoredArray
    whole: Source
    elements: np.dtype[Any]
    chunk_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    converts = True
    chunk_rows = 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.elements.newbyteorder("=")

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        found = self.stored.layout("each row by its offset in its chunk's file, into the batch")
        return replace(found, axes=layout_of(self.whole).axes)

    def annotations(self) -> Annotations:
        """Return attributes and fill value."""
        return self.stored.annotations()

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: other offsets and strides, nothing else."""
        offset, shape, strides = cut_strides(self.offset, self.shape, self.strides, cuts)
        whole = cut_source(self.whole, cuts)
        return replace(self, whole=whole, offset=offset, shape=shape, strides=strides)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        self.stored.check_unchanged()
        pieces = pieces_of(self.shape[1:], self.strides[1:], self.elements.itemsize)
        try:
            uninterrupted(partial(deliver, pieces, self.elements, rows, out, self._read))
        except (SourceError, UnfinishedError):
            self.whole.read_into(rows, out)
        self.stored.check_unchanged()

    def _read(self, rows: NDArray[np.int64], pieces: Pieces, out: NDArray[np.uint8]) -> None:
        metadata, axis = self.stored.metadata, self.stored.axis
        numbers, within = np.divmod(rows, metadata.chunk_shape[axis])
        # As if the chunks lay behind one another, a byte apart so that no two are joined.
        apart = self.chunk_bytes + 1
        starts = numbers * apart + (within * self.strides[0] + self.offset)
        starts = (starts[:, None] + pieces.offsets).ravel()
        firsts, lengths = join(starts, pieces.nbytes)
        numbers, offsets = np.divmod(starts[firsts], apart)
        places = firsts * pieces.nbytes
        files, inner = np.divmod(numbers, metadata.object_shape[axis] // metadata.chunk_shape[axis])
        touched, which = np.unique(files, return_inverse=True)
        table = handle(_OpenFiles, _OpenFiles)
        for start in range(0, len(touched), _FILES_AT_ONCE):
            some = touched[start : start + _FILES_AT_ONCE]
            held = table.open(self, some.tolist())
            here = np.flatnonzero((which >= start) & (which < start + len(some)))
            owner = which[here] - start
            if metadata.sharded:
                begins = np.stack([file.starts for file in held])[owner, inner[here]]
                if (begins < 0).any():
                    raise UnfinishedError(0, 0, None)
                offsets[here] += begins
            descriptors = np.array([file.opened.number for file in held])[owner]
            read_runs(descriptors, offsets[here], places[here], lengths[here], out)
            # Asked after the read, it tells of what was written before and meanwhile.
            if not all(file.unchanged() for file in held):
                raise UnfinishedError(0, 0, None)

    def open_file(self, number: int) -> _File:
        """Open the file of a chunk or shard along the row axis.

        Raises
        ------
        oocdata.errors.SourceError
            If it can't be opened.
        UnfinishedError
            If it is not as long as it must be, or was written after the array was opened.
        """
        stored = self.stored
        metadata = stored.metadata
        place = [0] * len(metadata.shape)
        place[stored.axis] = number
        name = join_names(stored.key, metadata.name(tuple(place)))
        opened = Descriptor(f"{stored.store.path}/{name}")
        status = os.fstat(opened.number)
        if stored.newest is not None and status.st_mtime_ns > stored.newest:
            raise UnfinishedError(0, 0, None)
        index = metadata.shard_index
        if index is None:
            if status.st_size != self.chunk_bytes:
                raise UnfinishedError(0, 0, None)
            return _File(opened, status.st_mtime_ns, np.zeros(1, np.int64))
        first = max(0, status.st_size - index.nbytes) if index.at_end else 0
        try:
            addresses = index.parse(os.pread(opened.number, index.nbytes, first))
        except (OSError, ValueError, ImportError) as error:
            raise UnfinishedError(0, 0, None) from error
        # Of those along the row axis; a shard may reach over the end of the other axes.
        along = tuple(slice(None) if axis == stored.axis else 0 for axis in range(len(place)))
        starts, lengths = addresses[along].T
        # All ones, for a chunk that is not there, reaches beyond every file.
        there = (lengths == self.chunk_bytes) & (starts < status.st_size)
        there &= starts + lengths <= status.st_size
        return _File(opened, status.st_mtime_ns, np.where(there, starts.astype(np.int64), -1))


@dataclass(frozen=True, slots=True, eq=False)
class _File:
    """An open file, when it was written, and where its chunks start; -1 for those not there."""

    opened: Descriptor
    modified: int
    starts: NDArray[np.int64]

    def unchanged(self) -> bool:
        """Return whether nobody has written to it since."""
        return os.fstat(self.opened.number).st_mtime_ns == self.modified


class _OpenFiles:
    """Files of chunks that this process keeps open: the ones used last, of all arrays together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._most = min(_MOST_OPEN, _allowed() // 4)
        self._open: OrderedDict[tuple[object, int], _File] = OrderedDict()

    def open(self, source: ChunkFiles, numbers: list[int]) -> list[_File]:
        """Return files of chunks; they stay open while somebody has them. Raises as `open_file`."""
        # Not the description: it would be compared with every look into the table.
        owner = handle((ChunkFiles, source.stored), object)
        with self._lock:
            found = []
            for number in numbers:
                key = owner, number
                file = self._open.pop(key, None)
                if file is None:
                    file = source.open_file(number)
                self._open[key] = file  # at the end: used last
                found.append(file)
            while len(self._open) > self._most:
                self._open.popitem(last=False)
        return found


def _allowed() -> int:
    """Return how many files this process may have open."""
    try:
        import resource  # not on every system
    except ImportError:
        return 256
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 4 * _MOST_OPEN if soft == resource.RLIM_INFINITY else soft


def plain_rows(whole: Chunks, stored: StoredArray, *, complete: bool) -> Source:
    """Return the source that reads rows alone where they can be, else the one of whole chunks.

    Parameters
    ----------
    whole : Chunks
        The rows as whole chunks.
    stored : StoredArray
    complete : bool
        A chunk that is not there is an error: none is known to be left out.
    """
    metadata, axis = stored.metadata, stored.axis
    plain = metadata.plain
    if plain is None or not isinstance(stored.store, Folder) or not complete:
        return whole
    if prod(metadata.shape) * plain.dtype.itemsize <= chunk_budget():
        return whole  # every chunk is read once, and then kept
    others = [other for other in range(len(metadata.shape)) if other != axis]
    if any(metadata.chunk_shape[other] < metadata.shape[other] for other in others):
        return whole  # an element lies in several chunks
    strides = tuple(plain.strides[place] for place in (axis, *others))
    pieces = pieces_of(whole.shape[1:], strides[1:], plain.dtype.itemsize)
    if pieces.nbytes < _LARGE:
        return whole
    return ChunkFiles(stored, whole, plain.dtype, plain.nbytes, whole.shape, strides)
