"""Read rows in cached blocks, where that is faster than reading each row.

Blocks of the array are the chunks of a `Chunked` source. Three kinds of arrays gain:

- Interleaved rows (Fortran order, a sample axis that is fast in storage). Such a row is thousands
  of runs of a few bytes; if many neighbouring rows are read at a time, runs are that much longer.
- Small rows. A request costs as much as copying some kilobytes, so as much of the array as there is
  room for in the cache is read once: labels of 8 bytes in 1 / 15 of the processor time.
- Rows cut by chunks, as h5py's default chunks do. Chunks are decoded into whole rows, so that a row
  is gathered from one place: robomimic's windows of images in 1 / 3.3 of the time by `to_tf`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.cache import MANY_TIMES
from oocdata.engines.chunked import Chunked
from oocdata.engines.concat import Concat, PartTable
from oocdata.engines.copying import read_to
from oocdata.engines.decoded import Decoded
from oocdata.engines.many_files import joined_chunks
from oocdata.engines.mixed_shapes import PaddedArray
from oocdata.engines.parts import RowOffsets
from oocdata.engines.plan import plan_box
from oocdata.engines.prefetch import GAP
from oocdata.engines.ragged import Runs, run_boxes, scatter_runs
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.engines.strided import Strided
from oocdata.engines.wrapped import Relabelled, SourceChunks, Transposed, reordered
from oocdata.errors import SourceError
from oocdata.memory import cache_share
from oocdata.threads import cached_property

_SHORT = 4096
"""Bytes of a run up to which a read request costs more than an additional copy."""

_SHORT_FETCH = GAP // 4
"""The same of a store. Shuffled rows of 8 KB, which are fetched with the gaps between them, were
1.8 times the array in each epoch; behind 30 ms, blocks take 1 / 5 of the time in the first epoch of
64 MiB, and no requests in later ones."""

_BLOCK_BYTES = 8 << 20
"""Size of a block of interleaved rows."""

_WHOLE_BYTES = 32 << 20
"""Interleaved rows are all in one block if they have at most this size."""

_UNCUT_BYTES = 64 << 20
"""Maximum size of a block of rows that are joined from chunks."""

_MIN_CACHED_BLOCKS = 4
"""Such blocks that must fit in the cache: a shuffle mixes several."""

_SMALL_BLOCK_BYTES = 1 << 20
"""Size of a block of small rows."""

_FEW = 8
"""Fewer boxes are read one by one: a single row is not worth a block. In a store it is, as any
request takes as long as one for a block, and neighbouring rows will be read too."""


def blocked(source: Source, axes: tuple[int, ...]) -> Source:
    """Return the fastest source of rows: the same source, or one that reads blocks of rows.

    `axes` are the sample axes, outermost first.
    """
    if isinstance(source, Concat) and source.chunk_shape and source.axis in axes:
        return _uncut(source, axes)
    if isinstance(source, Concat):
        parts = [blocked(part, axes) for part in source.parts]
        same = all(new is old for new, old in zip(parts, source.parts, strict=True))
        joined = None if same else _rows_as_one(source, parts) or _joined(source, parts)
        return source if same else joined or source.with_parts(parts)
    if isinstance(source, Decoded | Relabelled | PaddedArray):
        inner = blocked(source.source, axes)
        return source if inner is source.source else replace(source, source=inner)
    if isinstance(source, Chunked):
        return _uncut(source, axes)
    # A file that is open for writing may change at any time: it must not be cached.
    if (
        type(source) is not Strided  # subclasses read chunks that are files, in their own way
        or source.file.version.modified is None
        or 0 in source.shape
        or source.stored.names  # one field of it is read
        or min(source.strides, default=0) <= 0
    ):
        return source
    itemsize, ndim = source.stored.itemsize, len(source.shape)
    row = tuple(1 if axis in axes else length for axis, length in enumerate(source.shape))
    run = plan_box(row, (1,) * ndim, source.strides, itemsize, None, holes=False).run
    if run > (_SHORT_FETCH if source.file.is_remote else _SHORT):
        return source
    if not isinstance(source.chunk_offsets, RowOffsets | None):
        chunk = tuple(map(min, source.chunk_offsets.chunk_shape, source.shape))
        is_cut = any(n > chunk[axis] for axis, n in enumerate(source.shape) if axis not in axes)
        return source if is_cut else CachedRows(source, chunk)
    if run == prod(row) * itemsize:
        order = sorted(range(ndim), key=lambda axis: source.strides[axis])
        nbytes = prod(source.shape) * itemsize
        steps = zip(source.shape, source.strides, strict=True)
        span = sum((length - 1) * step for length, step in steps) + itemsize
        block_bytes = _SMALL_BLOCK_BYTES
        # Gaps between several datasets are not read.
        if source.chunk_offsets is None and span > 2 * nbytes:
            step = min(source.strides[axis] for axis in axes if source.shape[axis] > 1)
            if step > (run + GAP if source.storage().is_remote else _SHORT):
                return source
            # A field of rows: the gaps are read too, so do that only once.
            block_bytes = block_bytes * nbytes // span
        return CachedRows(source, _block_shape(source, order, block_bytes))
    return _interleaved(source, axes, [axis for axis in range(ndim) if axis not in axes])


def _rows_as_one(whole: Concat, parts: Sequence[Source]) -> CachedRows | None:
    """Return rows of several arrays, each cached in blocks, as one; None if it is not faster.

    Rows of 28 bytes of 2,000 `.npy` files of 50 rows take 1 / 6 of the processor's time by NumPy
    iteration, 1 / 13 in the first epoch. Opening 5,000 takes 1 / 1.6 of the time of blocks a file.
    """
    rows = [part for part in parts if isinstance(part, CachedRows)]
    blocks = {each.chunk_shape[1:] for each in rows if each._cut_axes}
    are_alike = whole.chunk_shape or all(isinstance(part, Strided) for part in whole.parts)
    if len(rows) < len(parts) or len(blocks) > 1 or not are_alike:
        return None
    if any(whole.axis in each._cut_axes for each in rows):
        return None
    lengths = zip(*(each.chunk_shape for each in rows), strict=True)
    cached: Any = CachedRows(whole, tuple(map(max, lengths)))
    return cached if cached._is_joined or cached._cached.readers else None


def _joined(whole: Concat, parts: Sequence[Source]) -> Transposed | None:
    """Return `whole` with other parts, joined before they are transposed; None if some are not."""
    views = [part for part in parts if isinstance(part, Transposed)]
    if len(views) < len(parts) or len({view.order for view in views}) > 1:
        return None
    order = views[0].order
    joined = Concat(tuple(view.source for view in views), order[whole.axis], whole.table)
    return Transposed(joined, order, whole.with_parts([view.like for view in views]))


def _block_shape(source: Strided, order: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the largest block of at most `most` bytes that takes axes whole, in `order`."""
    chunk, nbytes = [1] * len(source.shape), source.stored.itemsize
    for axis in order:
        chunk[axis] = min(source.shape[axis], max(1, most // nbytes))
        nbytes *= chunk[axis]
        if chunk[axis] < source.shape[axis]:
            break
    return tuple(chunk)


def _interleaved(source: Strided, axes: tuple[int, ...], element: list[int]) -> Source:
    """Return a source that reads blocks of interleaved rows."""
    ndim = len(source.shape)
    slowest = max(source.strides[axis] for axis in element if source.shape[axis] > 1)
    fast = [axis for axis in axes if source.strides[axis] < slowest and source.shape[axis] > 1]
    if not fast:
        return source
    row = prod(source.shape[axis] for axis in element) * source.stored.itemsize
    interleaved = prod(source.shape[axis] for axis in fast)
    fast.sort(key=lambda axis: source.strides[axis])
    chunk = [1] * ndim
    # All rows that are interleaved, or as many as make a block.
    left = interleaved if interleaved * row <= _WHOLE_BYTES else max(1, _BLOCK_BYTES // row)
    if left == 1:
        return source
    for axis in fast:
        chunk[axis] = min(source.shape[axis], left)
        left = max(1, left // chunk[axis])
    # If the block is too large, cut slow element axes: then parts of rows take fewer bytes.
    slow = sorted(element, key=lambda axis: -source.strides[axis])
    for axis in slow:
        chunk[axis] = source.shape[axis]
    for axis in slow:
        excess = prod(chunk) * source.stored.itemsize / _BLOCK_BYTES
        chunk[axis] = max(1, int(chunk[axis] / max(1.0, excess)))
    rows = prod(chunk[axis] for axis in axes)
    like = source.with_storage(
        chunks=tuple(chunk), reading=f"{rows} interleaved rows are read together and cached"
    )
    order = (*axes, *element)
    if order == tuple(range(ndim)):
        return Chunked(_blocks_of(like, like.storage(), tuple(chunk)))
    # Blocks have the sample axes outermost. SEVIR's windows, with time as the last axis, take 1 / 5
    # of the processor time by NumPy iteration, 1 / 4 through `to_tf`; single frames of an array
    # twice as large as the cache 1 / 2.9 by NumPy iteration. Blocks that are read many times an
    # epoch, because memory was limited to a few of them, take more time.
    whole, lengths = Transposed(like, order, like), reordered(chunk, order)
    described = replace(like.storage(), chunks=lengths, parts=(0,), parts_axis=0, dimensions=())
    blocks = Chunked(SourceChunks(whole, described, lengths, key=(_key(source), order)))
    return Transposed(blocks, tuple(map(order.index, range(ndim))), like)


def _uncut(source: Chunked | Concat, axes: tuple[int, ...]) -> Source:
    """Return a source with whole rows, if chunks cut them."""
    shape, cut = source.shape, source.chunk_shape or ()
    chunk = tuple(cut[axis] if axis in axes else shape[axis] for axis in range(len(shape)))
    first = source.parts[0] if isinstance(source, Concat) else source
    is_made_of_rows = isinstance(first, Chunked) and isinstance(first.reader, SourceChunks)
    plain = 0 not in shape and not source.dtype.names and not is_made_of_rows
    small = prod(chunk) * source.dtype.itemsize <= _UNCUT_BYTES
    return CachedRows(source, chunk) if small and plain and chunk != cut else source


def _blocks_of(source: Strided, described: Storage, chunk_shape: tuple[int, ...]) -> SourceChunks:
    """Return blocks of an array of up to a shape."""
    lengths = tuple(map(min, chunk_shape, source.shape))
    return SourceChunks(source, described, lengths, key=_key(source))


def _key(source: Strided) -> Hashable:
    """Return a key of an array; equal arrays share cached blocks."""
    layout = (source.offset, source.stored.str, source.shape, source.strides, source.axis)
    return source.file.version, layout, source.chunk_offsets


class CachedRows(WithStorage):
    """An array whose rows are read from cached blocks, as far as there is room for these.

    Rows cut by chunks need room for several blocks.
    """

    def __init__(self, source: Strided | Chunked | Concat, chunk_shape: tuple[int, ...]) -> None:
        self.source, self.shape, self.dtype = source, source.shape, source.dtype
        self.chunk_shape = chunk_shape
        self._nbytes = prod(source.shape) * source.dtype.itemsize
        chunks: tuple[int, ...] | None = getattr(source, "chunk_shape", None)
        pairs = enumerate(zip(chunk_shape, chunks or chunk_shape, strict=True))
        self._cut_axes = [axis for axis, (block, chunk) in pairs if block != chunk]
        self._is_small = chunks is None
        self._is_joined = self._is_small and isinstance(source, Concat) and source.axis == 0

    # Made when they are needed, which is never for each of many files that are read as one.

    @cached_property
    def _storage(self) -> Storage:
        storage = self.source.storage()
        if not self._is_small:
            return storage
        reading = storage.reading
        if self._nbytes <= MANY_TIMES * cache_share():
            reading = "small rows, in blocks that are read once and cached, if there is room"
        return replace(storage, reading=reading, cached_whole=(self._nbytes,))

    @cached_property
    def _cached(self) -> Chunked | Concat:
        """The blocks of all arrays as one."""
        source: Any = self.source
        parts, shape = getattr(source, "parts", (source,)), self.chunk_shape
        if self._is_joined:
            blocks = [_blocks_of(part, self._storage, shape) for part in parts]
            joined, owners, starts = joined_chunks(blocks)
            table: PartTable = source.table
            owners, within = owners[table.owners], starts[table.owners] + table.within
            return Concat(tuple(joined), 0, replace(table, owners=owners, within=within))
        if self._is_small:
            cached = [Chunked(_blocks_of(part, self._storage, shape)) for part in parts]
        else:  # as long as the chunks along axes that blocks do not span
            spans = np.equal(shape, source.shape)
            spans[[source.axis] if isinstance(source, Concat) else []] = False
            lengths = [np.where(spans, shape, part.chunk_shape).tolist() for part in parts]
            pairs = zip(parts, lengths, strict=True)
            cached = [Chunked(part.reader, tuple(each)) for part, each in pairs]
        return source.with_parts(cached) if isinstance(source, Concat) else cached[0]

    @cached_property
    def _few(self) -> int:
        """Up to so many boxes are read without blocks."""
        return 0 if self._storage.is_remote or self._cut_axes else _FEW

    has_runs = True

    def __reduce__(self) -> Any:
        return CachedRows, (self.source, self.chunk_shape)

    def _shares(self, origins: Ints, extent: Extent) -> list[tuple[Source, Ints | slice]]:
        """Return the sources to read boxes from, each with the numbers of its boxes."""
        direct: list[Any] = [(self.source, slice(None))]
        if self._cut_axes:
            # Parts of rows cut by chunks need only some of the chunks.
            whole = all(extent.lengths[axis] == self.shape[axis] for axis in self._cut_axes)
            least = _MIN_CACHED_BLOCKS * prod(self.chunk_shape) * self.dtype.itemsize
            return [(self._cached, slice(None))] if whole and least <= cache_share() else direct
        if len(origins) < self._few:
            return direct
        whole = extent.lengths[1:] == self.shape[1:] and self._few > 0
        contiguous = isinstance(self.source, Strided) and self.source.chunk_offsets is None
        if (
            whole
            and contiguous
            and self.source.has_runs
            # By the ends alone: a shuffled batch that is taken for neighbours is read one by one.
            and origins[-1, 0] - origins[0, 0] == (len(origins) - 1) * extent.lengths[0]
        ):
            # In one request: a first epoch in order, of rows of 784 bytes, takes 1 / 2.7 of the
            # processor's time.
            return direct
        if not self._few:  # in a store: all or none, so that what an epoch fetches is known before
            origins, extent = run_boxes(self.source, np.array(self.shape[:1]) - 1, 1)
        kept = self._cached.kept(origins, extent)
        if kept.all() or not kept.any():
            return [(self._cached, slice(None))] if kept.any() else direct
        return [(self._cached, kept.nonzero()[0]), (self.source, (~kept).nonzero()[0])]

    def read(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None = None
    ) -> None:
        for source, some in self._shares(origins, extent):
            where = places if isinstance(some, slice) else some if places is None else places[some]
            begins = origins[some]
            read = partial(read_to, origins=begins, extent=extent, out=out, places=where)
            self._read(source, read, begins[:, 0], extent.spans[0])

    read_to = read

    def _read(
        self, source: Source, read: Callable[[Source], None], starts: Ints, lengths: Ints | int
    ) -> None:
        """Read from a source; from the arrays if it is the blocks of several, and that fails."""
        if source is self.source or not self._is_joined:
            read(source)
            return
        with suppress(SourceError):
            read(source)
            cast(Concat, self.source).check_at(starts, lengths)
            return
        read(self.source)  # raises the error of one of them, with its rows

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        return [(each, origins[some], extent) for each, some in self._shares(origins, extent)]

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        targets = np.cumsum(lengths) - lengths
        for source, some in self._run_shares(starts, lengths):
            runs: Any = {"starts": starts[some], "counts": lengths[some], "targets": targets[some]}
            self._read(source, partial(scatter_runs, out=out, **runs), starts[some], lengths[some])

    def runs_below(self, starts: Ints, lengths: Ints) -> list[Runs]:
        shares = self._run_shares(starts, lengths)
        return [(source, starts[some], lengths[some]) for source, some in shares]

    def _run_shares(self, starts: Ints, lengths: Ints) -> list[tuple[Source, Ints | slice]]:
        """Return the sources to read runs from, each with the numbers of its runs.

        Ragged rows of 5 to 60 numbers, of which each reads two offsets, take 1 / 2.3 of the
        processor's time from cached blocks, by NumPy iteration.
        """
        if self._nbytes // self.shape[0] * int(lengths.sum()) > _SHORT * len(lengths):
            return [(self.source, slice(None))]
        return self._shares(*run_boxes(self.source, starts + lengths - 1, 1))
