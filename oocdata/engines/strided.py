"""Read arrays whose elements lie at an offset plus a stride per axis in one file.

A box is a set of runs of bytes. The runs of all boxes of a batch, adjacent runs joined, are read
directly into the batch, or through a small scratch buffer if it has another dtype or order of axes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_positions, slice_boxes
from oocdata.engines.buffers import scratch_memory
from oocdata.engines.copying import copy_reordered
from oocdata.engines.files import Descriptor, File, Readable
from oocdata.engines.parts import JoinedParts
from oocdata.engines.plan import Plan, plan_box
from oocdata.engines.prefetch import Fetch
from oocdata.engines.ragged import cut_runs, run_boxes
from oocdata.engines.runs import UnfinishedError
from oocdata.engines.source import Storage, WithStorage
from oocdata.errors import SourceError, TruncatedFileError


class ChunkOffsets(Protocol):
    """Byte offsets of an array's chunks in a file, each stored uncompressed and in C order."""

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of every chunk; chunks at the end of an axis are stored in full."""

    def offsets(self, places: Ints) -> Ints:
        """Return the byte offset of each chunk, given its place in the grid, shape (n, N)."""


class Strided(WithStorage):
    """An array at known byte offsets of one file.

    It is `stored` with a byte order, and has a native `dtype`. `strides` are the bytes from one
    position to the next along each axis, perhaps 0, and `offset` is that of the number at (0, …,
    0). With `chunk_offsets`, of unfiltered chunks, strides hold within a chunk, and `offset` is
    added to the offset of each chunk. Positions along `axis` are called rows in errors.
    """

    _read_files: ClassVar[Callable[..., None] | None] = None
    """Replaces `Readable.read_runs` in a subclass whose chunks are files that it opens itself."""

    def __init__(
        self,
        file: File,
        stored: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        storage: Storage,
        chunk_offsets: ChunkOffsets | None = None,
        *,
        axis: int = 0,
    ) -> None:
        self.file, self.stored, self.shape, self.strides = file, stored, shape, strides
        self.offset, self.chunk_offsets, self.axis = offset, chunk_offsets, axis
        self.dtype = stored.newbyteorder("=")
        self._storage = storage if storage.offset == offset else replace(storage, offset=offset)
        self.steps = np.array(strides, np.int64)

    def __reduce__(self) -> Any:
        array = self.file, self.stored, self.shape, self.strides, self.offset
        return partial(Strided, axis=self.axis), (*array, self._storage, self.chunk_offsets)

    def with_storage(self, **changes: Any) -> Strided:
        """Return the same array with fields of its storage description replaced."""
        array = copy(self)
        array._storage = replace(self._storage, **changes)
        return array

    def read(
        self, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None = None
    ) -> None:
        if out.size == 0:
            return
        plan, boxes = self.plan(extent, out), origins.shape[0]
        try:
            opened = self.file.opened()
            if not opened.unchanged():
                raise self._changed(opened)
            if boxes > plan.boxes and opened.number < 0:  # a store: in the order of the requests
                order = origins.dot(self.steps).argsort(kind="stable")
                origins, places = origins[order], order if places is None else places[order]
            if plan.slabs is not None:
                self._read_slabs(plan.slabs, origins, extent, out, places)
            elif not plan.direct:
                self._read_through(opened, plan, origins, extent, out, places)
            elif (
                boxes == 1 == out.shape[0]
                and plan.file_offsets.size == 1
                and self.chunk_offsets is None
                and isinstance(opened, Descriptor)
                and out.flags.c_contiguous
            ):
                # Without tables of runs: an element of a map-style dataset takes 19 µs of processor
                # time for 60 KB and 9 µs for 784 bytes, against 28 and 18 µs.
                try:
                    opened.read_into(out, self.offset + int(origins[0].dot(self.steps)))
                except UnfinishedError as error:
                    raise self._unfinished(opened, error) from error.cause
            else:
                places = np.arange(boxes) if places is None else places
                for start in range(0, boxes, plan.boxes):
                    batch = slice(start, start + plan.boxes)
                    self._fill(opened, plan, origins[batch], extent, out, places[batch])
            # Compared again, so that a file overwritten during the read is an error.
            if not opened.unchanged():
                raise self._changed(opened)
        except SourceError as error:
            self._complete(error, covered_positions(origins, extent, self.axis))
            raise

    read_to = read

    def check(self) -> None:
        self.file.opened().compare(self._storage.key)

    def fetches(self, origins: Ints, extent: Extent) -> list[Fetch]:
        if not self.file.is_remote:
            return []
        plan = plan_box(
            extent.lengths, extent.strides, self.strides, self.stored.itemsize, None, holes=False
        )
        starts, _, lengths, _ = plan.runs(
            origins, extent, self.steps, np.zeros(len(origins), np.int64), self.chunk_offsets
        )
        return self.file.fetches(starts + self.offset, lengths)

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        """Write runs of positions along axis 0 one after the other; see `ragged.read_ragged`."""
        starts, lengths, offsets = self._located(starts, lengths)
        nbytes = lengths * self.strides[0]
        addresses = np.cumsum(nbytes) - nbytes + out.ctypes.data
        try:
            opened = self.file.opened()
            if not opened.unchanged():
                raise self._changed(opened)
            try:
                opened.read_runs(offsets, addresses, nbytes, out)
            except UnfinishedError as error:
                failed = self._unfinished(opened, error)
                first = int(starts[error.run])
                self._complete(failed, range(first, first + int(lengths[error.run])))
                raise failed from error.cause
            if not opened.unchanged():
                raise self._changed(opened)
        except SourceError as error:
            self._complete(error, _spanned(starts, lengths))
            raise
        if self.stored != self.dtype:
            out[...] = out.view(self.stored)

    @property
    def has_runs(self) -> bool:
        """Whether a run along axis 0 is contiguous bytes, in the file or within each chunk."""
        chunk = self.shape if self.chunk_offsets is None else self.chunk_offsets.chunk_shape
        strides = contiguous_strides(chunk, self.stored.itemsize)
        return chunk[1:] == self.shape[1:] and self.strides == strides

    def _located(self, starts: Ints, lengths: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the runs cut at chunk borders, and the byte offset of each."""
        step = self.strides[0]
        if self.chunk_offsets is None:
            return starts, lengths, starts * step + self.offset
        length = self.chunk_offsets.chunk_shape[0]
        chunks, within, lengths = cut_runs(starts, lengths, length)
        offsets = self.chunk_offsets.offsets(run_boxes(self, chunks, 1)[0]) + within * step
        return chunks * length + within, lengths, offsets + self.offset

    def plan(self, extent: Extent, out: NDArray[Any]) -> Plan:
        """Plan how boxes of an extent are read into `out`."""
        if not out.flags.writeable:  # the kernel writes regardless of NumPy's flag
            raise ValueError("`out` must be writable; it is read-only.")
        return plan_box(
            extent.lengths,
            extent.strides,
            self.strides,
            self.stored.itemsize,
            out.strides[1:] if out.dtype == self.stored else None,
            holes=self.chunk_offsets is None,
        )

    def _read_through(
        self,
        opened: Readable,
        plan: Plan,
        origins: Ints,
        extent: Extent,
        out: NDArray[Any],
        places: Ints | None,
    ) -> None:
        """Read boxes through a scratch buffer that has their bytes in the order of storage."""
        scratch = scratch_memory((min(len(origins), plan.boxes), plan.nbytes), np.uint8)
        for start in range(0, len(origins), plan.boxes):
            batch = origins[start : start + plan.boxes]
            self._fill(opened, plan, batch, extent, scratch, np.arange(len(batch)))
            shape, strides = (len(batch), *extent.lengths), (plan.nbytes, *plan.strides)
            read = np.ndarray(shape, self.stored, scratch, 0, strides)
            region = slice(start, start + plan.boxes)
            if places is None:
                copy_reordered(read, out[region])
            else:
                out[places[region]] = read

    def _read_slabs(
        self,
        slabs: tuple[int, int],
        origins: Ints,
        extent: Extent,
        out: NDArray[Any],
        places: Ints | None,
    ) -> None:
        """Read boxes that are too large for one read in slabs, cut along one axis."""
        axis, length = slabs
        for start in range(0, extent.lengths[axis], length):
            stop = min(start + length, extent.lengths[axis])
            moved, slab, region = slice_boxes(origins, extent, axis, start, stop)
            self.read_to(moved, slab, out[region], places)

    def _fill(
        self,
        opened: Readable,
        plan: Plan,
        origins: Ints,
        extent: Extent,
        memory: NDArray[Any],
        places: Ints,
    ) -> None:
        """Read boxes into memory at `places` along its first axis."""
        addresses = places * memory.strides[0]
        addresses += memory.__array_interface__["data"][0]
        starts, addresses, lengths, boxes = plan.runs(
            origins, extent, self.steps, addresses, self.chunk_offsets
        )
        starts += self.offset
        try:
            (self._read_files or opened.read_runs)(starts, addresses, lengths, memory)
        except UnfinishedError as error:
            failed = self._unfinished(opened, error)
            box = error.run // len(plan.file_offsets) if boxes is None else int(boxes[error.run])
            self._complete(failed, covered_positions(origins[box : box + 1], extent, self.axis))
            raise failed from error.cause

    def _unfinished(self, opened: Readable, error: UnfinishedError) -> SourceError:
        """Return the error for a run that was not read to its end, without its rows."""
        cause, path = error.cause, self.file.version.path
        if isinstance(cause, SourceError):  # other readers may raise the same one
            return type(cause)(cause.message, path=cause.path)
        if not opened.unchanged():
            return self._changed(opened)
        if cause is not None:
            return SourceError(f"could not be read: {cause}.", path=path)
        return TruncatedFileError(
            "the file must hold the bytes of these rows; it ends before. It was cut short after it "
            "was opened.",
            path=path,
        )

    def _changed(self, opened: Readable) -> SourceError:
        """Return the error for a file that is another version, without its rows."""
        try:
            opened.compare()
        except SourceError as error:
            return error
        return SourceError(
            "the file must stay as it is while it is read; it changed, and changed back.",
            path=self.file.version.path,
        )

    def _complete(self, error: SourceError, rows: range | Ints) -> None:
        """Add the dataset and the rows to an error without rows; of several datasets, the first."""
        if error.rows is None:
            error.key = self._storage.key
            error.set_rows(rows)
            parts: JoinedParts | None = getattr(self.chunk_offsets, "parts", None)
            if parts is not None:
                parts.assign_part(error)


def _spanned(starts: Ints, lengths: Ints) -> range:
    """Return the positions from the first run to the last one."""
    return range(int(starts.min()), int((starts + lengths).max())) if len(starts) else range(0)


def contiguous_strides(
    shape: tuple[int, ...], itemsize: int, *, fortran: bool = False
) -> tuple[int, ...]:
    """Return the byte strides of a contiguous array."""
    axes = range(len(shape))
    if fortran:
        return tuple(itemsize * prod(shape[:axis]) for axis in axes)
    return tuple(itemsize * prod(shape[axis + 1 :]) for axis in axes)
