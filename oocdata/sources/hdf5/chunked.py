"""Filtered chunks without HDF5: the table of chunks once, then ``pread`` and decode in threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import DamagedChunkError, MissingChunkError, SourceError, TruncatedFileError
from oocdata.sources.codecs import room_for
from oocdata.sources.extents import FileStamp
from oocdata.sources.handles import Descriptor, handle
from oocdata.sources.hdf5.decode import ChunkDecoder
from oocdata.sources.hdf5.file import open_file, readable
from oocdata.sources.source import Layout

__all__ = ["ChunkTable", "ChunkedReader", "UnfilteredChunks"]

_BEYOND = 1 << 62
"""An offset that no file has, and to which a length may be added."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """Where each chunk of a dataset lies.

    Attributes
    ----------
    offsets : ndarray of int64, shape of the chunk grid
        -1 for a chunk that was never written.
    sizes : ndarray of int64
    skipped : ndarray of uint32
        Bit i is set where filter i was not applied.
    fill : generic
        What a chunk that was never written reads as.
    options : tuple of tuple of int
        What the file gives each filter.
    """

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    skipped: NDArray[np.uint32]
    fill: Any
    options: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, file: FileStamp, key: str, chunk_shape: tuple[int, ...]) -> ChunkTable:
        """Read the table from the file, which is closed again."""
        with open_file(file.path) as opened, readable(file.path, key):
            dataset = opened[key]
            grid = tuple(
                -(-length // step)
                for length, step in zip(dataset.shape, dataset.chunks, strict=True)
            )
            made = dataset.id.get_create_plist()
            filters = [made.get_filter(place) for place in range(made.get_nfilters())]
            table = cls(
                np.full(grid, -1, np.int64),
                np.zeros(grid, np.int64),
                np.zeros(grid, np.uint32),
                dataset.fillvalue,
                tuple(tuple(values) for _, _, values, _ in filters),
            )

            def note(info: Any) -> None:
                place = tuple(
                    start // step
                    for start, step in zip(info.chunk_offset, dataset.chunks, strict=True)
                )
                # Chunks may be left beyond the end of a dataset that shrank.
                if all(at < count for at, count in zip(place, grid, strict=True)):
                    # Damaged ones may be any; beyond the end of the file they are all alike.
                    table.offsets[place] = min(info.byte_offset, _BEYOND)
                    table.sizes[place] = info.size
                    table.skipped[place] = info.filter_mask

            dataset.id.chunk_iter(note)
        return table


@dataclass(frozen=True, slots=True)
class UnfilteredChunks:
    """Where the chunks of an unfiltered dataset lie, each holding whole rows.

    Parameters
    ----------
    file : FileStamp
    key : str
    chunk_shape : tuple of int
        As stored.
    axis : int
        The row axis, the only one that is cut into chunks.
    """

    file: FileStamp
    key: str
    chunk_shape: tuple[int, ...]
    axis: int

    @property
    def rows(self) -> int:
        """Of one chunk."""
        return self.chunk_shape[self.axis]

    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offset of each chunk along the row axis."""
        return handle((UnfilteredChunks, self.file, self.key), self._read)

    def _read(self) -> NDArray[np.int64]:
        offsets = ChunkTable.read(self.file, self.key, self.chunk_shape).offsets.reshape(-1)
        if (offsets < 0).any():
            first = int(np.argmax(offsets < 0)) * self.rows
            raise MissingChunkError(
                "every chunk must have been written; some are gone since the file was opened.",
                path=self.file.path,
                key=self.key,
                rows=range(first, first + self.rows),
            )
        return offsets


@dataclass(frozen=True, slots=True)
class ChunkedReader:
    """A chunked dataset, read without HDF5 once its table of chunks is known.

    Parameters
    ----------
    file : FileStamp
    key : str
    shape : tuple of int
        As stored.
    dtype : numpy.dtype
        Native byte order.
    chunk_shape : tuple of int
        At most the shape.
    axis : int
        The row axis, to name rows in errors.
    fill : bool
        What was never written reads as the fill value.
    decoder : ChunkDecoder
        Of whole stored chunks, which may reach over the shape.
    described : Layout
    """

    file: FileStamp
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_shape: tuple[int, ...]
    axis: int
    fill: bool
    decoder: ChunkDecoder
    described: Layout = field(compare=False)

    own_threads = False

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.described

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of the one chunk that a box is."""
        out = np.empty(tuple(part.stop - part.start for part in box), self.dtype)
        self.read_boxes([box], [out])
        return out

    def read_boxes(self, boxes: Sequence[tuple[slice, ...]], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks into their places, one after the other."""
        opened = self.file.descriptor()
        self._check(opened, boxes)
        table = handle((ChunkTable, self.file, self.key), self._table)
        steps = self.decoder.chunk_shape
        places = [
            tuple(part.start // step for part, step in zip(box, steps, strict=True))
            for box in boxes
        ]
        runs = [(int(table.offsets[place]), int(table.sizes[place])) for place in places]
        if len(runs) > 1 and hasattr(os, "posix_fadvise"):
            for offset, nbytes in runs:  # the system fetches the next while one is decoded
                if nbytes:
                    os.posix_fadvise(opened.number, offset, nbytes, os.POSIX_FADV_WILLNEED)
        memory = room_for(max(nbytes for _, nbytes in runs))
        for box, out, place, (offset, nbytes) in zip(boxes, outs, places, runs, strict=True):
            if offset >= 0:
                self._read(opened, box, offset, memory[:nbytes])
                self._decode(table, place, memory[:nbytes], box, out)
            elif self.fill:
                out[...] = table.fill
            else:
                raise self._error(MissingChunkError, "every chunk must have been written", box)
        # Nor are chunks kept that were written over while they were being read.
        self._check(opened, boxes)

    def _check(self, opened: Descriptor, boxes: Sequence[tuple[slice, ...]]) -> None:
        """Raise if the file has changed, with the rows of the boxes."""
        try:
            self.file.check(opened, self.key)
        except SourceError as error:
            parts = [range(box[self.axis].start, box[self.axis].stop) for box in boxes]
            error.rows = tuple(sorted({row for part in parts for row in part}))
            raise

    def _table(self) -> ChunkTable:
        table = ChunkTable.read(self.file, self.key, self.chunk_shape)
        # The descriptor may be open on a file that has been replaced since.
        if self.file.modified not in (None, os.stat(self.file.path).st_mtime_ns):
            raise SourceError(
                "the file must be as it was when it was opened; it has changed. Open it again.",
                path=self.file.path,
                key=self.key,
            )
        return table

    def _read(
        self, opened: Descriptor, box: tuple[slice, ...], offset: int, memory: memoryview
    ) -> None:
        """Fill memory with a stored chunk; one call reads 2 GiB at most."""
        done = 0
        while done < len(memory):
            try:
                got = os.preadv(opened.number, [memory[done:]], offset + done)
            except OSError as error:
                raise self._error(SourceError, f"a chunk must be readable; {error}", box) from error
            if got == 0:
                raise self._error(
                    TruncatedFileError,
                    f"the file must hold at least {offset + len(memory)} bytes; it ends at "
                    f"{os.fstat(opened.number).st_size}. It was cut short after it was opened",
                    box,
                )
            done += got

    def _decode(
        self,
        table: ChunkTable,
        place: tuple[int, ...],
        stored: memoryview,
        box: tuple[slice, ...],
        out: NDArray[Any],
    ) -> None:
        try:
            self.decoder.decode(stored, int(table.skipped[place]), out, table.options)
        except (ValueError, RuntimeError) as error:
            raise self._error(
                DamagedChunkError,
                f"a chunk must decode; {error}. Its bytes are damaged: restore the file",
                box,
            ) from error

    def _error(self, kind: type[SourceError], message: str, box: tuple[slice, ...]) -> SourceError:
        rows = range(box[self.axis].start, box[self.axis].stop)
        return kind(f"{message}.", path=self.file.path, key=self.key, rows=rows)
