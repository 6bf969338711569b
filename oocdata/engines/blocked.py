"""Rows that are better read many at a time: neighbours in storage are read together and cached.

Three kinds of arrays in a file gain by it:

- Rows that lie far apart (Fortran order, a sample axis that is fast in storage). One such row is
  thousands of runs of a few bytes; many neighbouring rows at a time make each run as long as they
  are many.
- Small rows. A request to the kernel costs as much as copying some kilobytes. If the array fits a
  part of the cache, it is read once. Labels of 8 bytes in HDF5's uncompressed chunks take 1 / 15 of
  the processor's time by NumPy iteration.
- Rows that are cut by chunks, as h5py's own chunks do. Chunks are decoded to whole rows, so that a
  row is gathered from one place. Shuffled batches take of the processor's time by NumPy iteration
  and through `to_tf`: of D4RL's small rows 1 / 2.2 and 1 / 1.7; of robomimic's windows of images
  1 / 4.2 and 1 / 3.3; of single images of 21 KB 1 / 1.4 and 1 / 1.3.

Each time, blocks of the array are the chunks of the chunked engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.cache import cache
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat
from oocdata.engines.decoded import Decoded
from oocdata.engines.parts import RowOffsets
from oocdata.engines.ragged import read_ragged, soon_ragged
from oocdata.engines.readers import SourceChunks, WholeRows
from oocdata.engines.soon import GAP, Soon
from oocdata.engines.source import Boxes, Source, Storage
from oocdata.engines.strided import Strided
from oocdata.engines.unlike import Filled
from oocdata.engines.wrapped import Relabelled
from oocdata.memory import cache_share

__all__ = ["CachedRows", "blocked", "fits"]

_SHORT = 4096
"""Bytes of a run: up to here, asking the kernel for it costs more than copying it once more."""

_BLOCK_BYTES = 8 << 20
"""Of rows that lie far apart."""

_WHOLE_BYTES = 32 << 20
"""Rows that share their bytes are all read together up to here."""

_UNCUT_BYTES = 64 << 20
"""Of rows that are put together of the chunks that cut them."""

_KEPT = 4
"""Blocks of such rows that the cache must have room for: a shuffle mixes those of several."""

_SMALL_BLOCK_BYTES = 1 << 20
"""Of small rows."""

_FEW = 8
"""Boxes up to which each is read by itself: one row is not worth a block. In a store it is, where a
request takes as long as a block, and rows near it will be read too."""


def blocked(source: Source, axes: tuple[int, ...]) -> Source:
    """Return the source that reads rows best: the same one, or one that reads blocks of rows.

    Parameters
    ----------
    source : Source
    axes : tuple of int
        The sample axes, outermost first.
    """
    if isinstance(source, Concat):
        parts = [blocked(part, axes) for part in source.parts]
        same = all(new is old for new, old in zip(parts, source.parts, strict=True))
        return source if same else source.with_parts(parts)
    if isinstance(source, Decoded | Relabelled | Filled):
        inner = blocked(source.source, axes)
        return source if inner is source.source else replace(source, source=inner)
    if isinstance(source, Chunked):
        return (
            source if isinstance(source.reader, SourceChunks | WholeRows) else _uncut(source, axes)
        )
    # A file that is open for writing may change at any time: nothing of it is kept.
    if (
        type(source) is not Strided  # chunks that are files are read in their own way
        or source.file.version.modified is None
        or 0 in source.shape
        or source.stored.names  # a field of it is read
        or min(source.strides, default=0) <= 0
    ):
        return source
    run = _run_of_row(source, axes)
    if run > _SHORT:
        return source
    if not isinstance(source.chunk_offsets, RowOffsets | None):
        chunk = tuple(map(min, source.chunk_offsets.chunk_shape, source.shape))
        cuts = any(n > chunk[axis] for axis, n in enumerate(source.shape) if axis not in axes)
        return source if cuts else CachedRows(source, chunk)
    element = [axis for axis in range(len(source.shape)) if axis not in axes]
    if run == prod(source.shape[axis] for axis in element) * source.stored.itemsize:
        order = sorted(range(len(source.shape)), key=lambda axis: source.strides[axis])
        nbytes, reach = prod(source.shape) * source.stored.itemsize, _reach(source)
        alone = source.chunk_offsets is None  # what lies between parts is not read
        most = _SMALL_BLOCK_BYTES
        if alone and reach > 2 * nbytes:
            apart = min(source.strides[axis] for axis in axes if source.shape[axis] > 1)
            if apart > run + GAP or not source.storage().is_remote:
                return source
            # A field of rows in a store: what lies between is fetched with it, then at least once.
            most = most * nbytes // reach
        return CachedRows(source, _filled(source, order, most))
    return _far_apart(source, axes, element)


def _run_of_row(source: Strided, axes: tuple[int, ...]) -> int:
    """Return the bytes of a row that lie together."""
    run = source.stored.itemsize
    for axis in sorted(range(len(source.shape)), key=lambda axis: source.strides[axis]):
        if source.shape[axis] == 1:
            continue
        if axis in axes or source.strides[axis] != run:
            break
        run *= source.shape[axis]
    return run


def _reach(source: Strided) -> int:
    """Return the bytes from the first to the last one of the array."""
    steps = zip(source.shape, source.strides, strict=True)
    return sum((length - 1) * step for length, step in steps) + source.stored.itemsize


def _filled(source: Strided, order: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the longest chunk of at most so many bytes: axes are taken whole in order."""
    chunk, nbytes = [1] * len(source.shape), source.stored.itemsize
    for axis in order:
        chunk[axis] = min(source.shape[axis], max(1, most // nbytes))
        nbytes *= chunk[axis]
        if chunk[axis] < source.shape[axis]:
            break
    return tuple(chunk)


def _far_apart(source: Strided, axes: tuple[int, ...], element: list[int]) -> Source:
    """Return the source that reads blocks of rows that lie between one another."""
    slowest = max(source.strides[axis] for axis in element if source.shape[axis] > 1)
    fast = [axis for axis in axes if source.strides[axis] < slowest and source.shape[axis] > 1]
    if not fast:
        return source
    row = prod(source.shape[axis] for axis in element) * source.stored.itemsize
    together = prod(source.shape[axis] for axis in fast)
    fast.sort(key=lambda axis: source.strides[axis])
    chunk = [1] * len(source.shape)
    # All rows that share their bytes, or as many as make a block.
    left = together if together * row <= _WHOLE_BYTES else max(1, _BLOCK_BYTES // row)
    if left == 1:
        return source
    for axis in fast:
        chunk[axis] = min(source.shape[axis], left)
        left = max(1, left // chunk[axis])
    # Slow element axes are cut where a block is large all the same: parts of rows read less then.
    slow = sorted(element, key=lambda axis: -source.strides[axis])
    for axis in slow:
        chunk[axis] = source.shape[axis]
    for axis in slow:
        excess = prod(chunk) * source.stored.itemsize / _BLOCK_BYTES
        chunk[axis] = max(1, int(chunk[axis] / max(1.0, excess)))
    rows = prod(chunk[axis] for axis in axes)
    described = replace(
        source.storage(),
        chunks=tuple(chunk),
        reading=f"{rows} rows that lie between one another are read together and cached",
    )
    return _in_blocks(source, described, tuple(chunk))


def _uncut(source: Chunked, axes: tuple[int, ...]) -> Source:
    """Return the source that has rows whole, where chunks cut them."""
    shape, cut = source.shape, source.reader.chunk_shape
    chunk = tuple(cut[axis] if axis in axes else shape[axis] for axis in range(len(shape)))
    plain = 0 not in shape and not source.dtype.names
    small = prod(chunk) * source.dtype.itemsize <= _UNCUT_BYTES
    return CachedRows(source, chunk) if small and plain and chunk != cut else source


def _in_blocks(source: Strided, described: Storage, chunk_shape: tuple[int, ...]) -> Chunked:
    """Return the source that reads blocks of another; those of the same bytes are cached once."""
    at = (source.offset, source.stored.str, source.shape, source.strides, source.axis)
    key = source.file.version, at, source.chunk_offsets
    return Chunked(SourceChunks(source, described, chunk_shape, key=key))


class CachedRows:
    """An array whose rows are read from cached blocks.

    Rows that chunks cut are decoded by blocks in any case; of small rows, the whole array must fit.

    Parameters
    ----------
    source : Strided or Chunked
    chunk_shape : tuple of int
    """

    def __init__(self, source: Strided | Chunked, chunk_shape: tuple[int, ...]) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.chunk_shape = chunk_shape
        self._nbytes = prod(source.shape) * source.dtype.itemsize
        storage = source.storage()
        self._uncut: list[int] = []
        if isinstance(source, Chunked):
            cut = source.reader.chunk_shape
            self._uncut = [axis for axis, n in enumerate(chunk_shape) if n != cut[axis]]
            self._cached = Chunked(WholeRows(source.reader, chunk_shape))
        else:
            reading = storage.reading
            if self._nbytes <= cache_share() // 2:
                reading = "small rows, in blocks that are each read once and cached"
            storage = replace(storage, reading=reading, cached_whole=(self._nbytes,))
            self._cached = _in_blocks(source, storage, chunk_shape)
        self._storage = storage
        self._few = 0 if storage.is_remote or self._uncut else _FEW

    def __reduce__(self) -> Any:
        return CachedRows, (self.source, self.chunk_shape)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._storage

    def _chosen(self, origins: NDArray[np.int64], extent: Extent) -> Strided | Chunked:
        """Return the source that reads these boxes."""
        # Parts of rows that chunks cut need some of the chunks alone.
        whole = all(extent.lengths[axis] == self.shape[axis] for axis in self._uncut)
        together = whole and len(origins) >= self._few
        return self._cached if together and self._fits() else self.source

    def _fits(self) -> bool:
        """Return whether blocks may be cached."""
        if self._uncut:
            return _KEPT * prod(self.chunk_shape) * self.dtype.itemsize <= cache_share()
        return fits(self, self._nbytes)

    def read(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64] | None = None,
    ) -> None:
        """Write ``out[i] = the box at origins[i]``, or to ``out[places[i]]``; see `Source.read`."""
        self._chosen(origins, extent).read(origins, extent, out, places)

    read_to = read

    def read_boxes(self, origins: NDArray[np.int64], extent: Extent) -> list[Boxes]:
        """Return the boxes that are read; see `oocdata.engines.soon.soon`."""
        return [(self._chosen(origins, extent), origins, extent)]

    def read_runs(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], out: NDArray[Any]
    ) -> None:
        """Write runs of rows one after the other; see `oocdata.engines.ragged.read_ragged`."""
        read_ragged(self._chosen_for_runs(lengths), starts, lengths, out)

    def soon_runs(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Soon]:
        """Return what `read_runs` will take out of a store; see `ragged.soon_ragged`."""
        return soon_ragged(self._chosen_for_runs(lengths), starts, lengths)

    def _chosen_for_runs(self, lengths: NDArray[np.int64]) -> Strided | Chunked:
        """Return the source that reads runs of rows."""
        row = self._nbytes // self.shape[0]
        short = len(lengths) >= self._few and row * int(lengths.sum()) <= _SHORT * len(lengths)
        return self._cached if short and self._fits() else self.source


_fitting: WeakKeyDictionary[Source, int] = WeakKeyDictionary()
"""Arrays that are cached, with their bytes: more than fit would push one another out."""


def fits(source: Source, nbytes: int) -> bool:
    """Return whether a whole array may be cached, beside those that are."""
    if source in _fitting:
        return True
    with cache.lock:
        if nbytes + sum(_fitting.values()) > cache_share() // 2:
            return False
        _fitting[source] = nbytes
    return True
