"""Chunks read without HDF5: by ``pread`` at their offsets, and decoded in threads.

HDF5 has one lock for all its calls, so of threads that decode through it one works at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import File, Readable
from oocdata.engines.parts import JoinedParts
from oocdata.engines.runs import UnfinishedError
from oocdata.engines.soon import Soon
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, MissingChunkError, SourceError, TruncatedFileError
from oocdata.formats.codecs import StoredBytes
from oocdata.formats.hdf5.decode import ChunkDecoder
from oocdata.formats.hdf5.table import ChunkTable

__all__ = ["FilteredChunks"]


@dataclass(frozen=True, slots=True)
class FilteredChunks:
    """The chunks of a filtered dataset; a `oocdata.engines.chunked.ChunkReader`."""

    file: File = field(compare=False, repr=False)
    table: ChunkTable  #: where they lie, in one dataset or in several
    decoder: ChunkDecoder  #: of whole stored chunks, which may reach over the shape
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    fill: bytes | None
    """One number as stored, as which reads what was never written; None where that is an error."""
    described: Storage = field(compare=False, repr=False)

    own_threads = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.decoder.stored.newbyteorder("=")

    @property
    def parts(self) -> JoinedParts | None:
        """Datasets whose chunks these are, numbered on from one to the next."""
        return self.table.parts

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        self.file.check(self.table.key)

    def soon(self, places: NDArray[np.int64]) -> list[Soon]:
        """Return what decoding chunks will take out of a store."""
        if not self.file.is_remote:
            return []
        offsets, sizes, _ = self._located(places)
        there = offsets >= 0
        return self.file.soon(offsets[there], sizes[there].astype(np.int64))

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks into their places, one after the other."""
        opened = self.file.opened()
        located = self._located(places)
        stored = StoredBytes()
        each = zip(*(found.tolist() for found in located), strict=True)
        decoders = self._decoders(places)
        for place, (offset, nbytes, skipped), out in zip(places, each, outs, strict=True):
            decoder, length = next(decoders)
            if offset < 0:
                if self.fill is None:
                    raise self._error(
                        MissingChunkError, "every chunk must have been written", place
                    )
                out[...] = np.frombuffer(self.fill, self.decoder.stored)[0]
                continue
            memory = stored(nbytes)
            self._read(opened, offset, memory, place)
            try:
                decoder.decode(memory, skipped, out[(slice(None),) * self.table.axis + (length,)])
            except (ValueError, RuntimeError) as error:
                self.check()  # bytes that were written over are not damaged
                raise self._error(
                    DamagedChunkError,
                    f"a chunk must decode; {error}. Its bytes are damaged: restore the file",
                    place,
                ) from error

    def _located(self, places: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Return where chunks lie; see `ChunkTable.locate`."""
        try:
            return self.table.locate(places)
        except SourceError as error:  # its metadata are read now
            if error.rows is None:
                error.concern(self._rows(places))
            raise

    def _rows(self, places: NDArray[np.int64]) -> list[int]:
        axis = self.table.axis
        step, length = self.chunk_shape[axis], self.shape[axis]
        first = np.unique(places[:, axis])[:, None] * step + np.arange(step)
        rows: list[int] = first[first < length].tolist()
        return rows

    def _decoders(self, places: NDArray[np.int64]) -> Iterator[tuple[ChunkDecoder, slice]]:
        """Yield what decodes each chunk, and how much of its place along the axis it fills."""
        parts, alike = self.parts, self.decoder
        if parts is None:
            yield from repeat((alike, slice(None)), len(places))
            return
        chunk, axis = alike.chunk_shape, parts.axis
        along = places[:, axis] * parts.unit
        numbers = parts.of(along)
        left = parts.starts[numbers] + parts.lengths[numbers] - along
        steps = repeat(chunk[axis]) if parts.steps is None else parts.steps[numbers].tolist()
        for step, length in zip(steps, np.minimum(left, parts.unit).tolist(), strict=False):
            whole = (*chunk[:axis], step, *chunk[axis + 1 :])
            yield ChunkDecoder(alike.filters, alike.stored, whole), slice(0, length)

    def _read(
        self, opened: Readable, offset: int, memory: memoryview, place: NDArray[np.int64]
    ) -> None:
        """Fill memory with a stored chunk."""
        try:
            opened.read_into(memory, offset)
        except UnfinishedError as error:
            cause = error.cause
            if isinstance(cause, SourceError):  # which says what is wrong, but for the rows
                raise self._error(type(cause), cause.message.rstrip("."), place) from cause
            if cause is not None:
                raise self._error(
                    SourceError, f"a chunk must be readable; {cause}", place
                ) from cause
            raise self._error(
                TruncatedFileError,
                f"the file must hold at least {offset + len(memory)} bytes; it ends at "
                f"{opened.held_bytes}. It was cut short after it was opened",
                place,
            ) from None

    def _error(
        self, kind: type[SourceError], message: str, place: NDArray[np.int64]
    ) -> SourceError:
        table, rows = self.table, self._rows(place[None])
        error = kind(f"{message}.", path=table.version.path, key=table.key, rows=rows)
        return error if table.parts is None else table.parts.concern(error)
