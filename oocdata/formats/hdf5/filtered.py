"""Read and decode chunks without HDF5, whose global lock lets one thread decode at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import File, Readable
from oocdata.engines.parts import JoinedParts
from oocdata.engines.prefetch import Fetch
from oocdata.engines.runs import UnfinishedError
from oocdata.engines.source import Storage
from oocdata.errors import MissingChunkError, SourceError
from oocdata.formats.codecs import chunk_error
from oocdata.formats.hdf5.decode import ChunkDecoder
from oocdata.formats.hdf5.table import ChunkTable


@dataclass(frozen=True, slots=True)
class FilteredChunks:
    """The chunks of a filtered dataset; a `oocdata.engines.chunked.ChunkReader`."""

    file: File = field(compare=False, repr=False)
    table: ChunkTable  #: offsets of the chunks, in one dataset or in several
    decoder: ChunkDecoder  #: of stored chunks, which may extend beyond the array
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    fill: bytes | None
    """Fill value as the bytes of one stored element; None if missing chunks are an error."""
    described: Storage = field(compare=False, repr=False)

    own_threads = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the decoded numbers, in native byte order."""
        return self.decoder.stored.newbyteorder("=")

    @property
    def parts(self) -> JoinedParts | None:
        """The datasets that hold the chunks, if there are several."""
        return self.table.parts

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        self.file.opened().compare(self.table.key)

    def fetches(self, places: Ints) -> list[Fetch]:
        """Return the requests to a store that decoding the chunks will need."""
        if not self.file.is_remote:
            return []
        offsets, sizes, _ = self.table.locate(places)
        present = offsets >= 0
        return self.file.fetches(offsets[present], sizes[present])

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Read and decode chunks into `outs`, one after the other."""
        opened = self.file.opened()
        entries = self.table.locate(places).T.tolist()
        lengths = self._lengths(places)
        for place, entry, length, out in zip(places, entries, lengths, outs, strict=True):
            offset, nbytes, skipped = entry
            if offset < 0:
                if self.fill is None:
                    absent = MissingChunkError("every chunk must have been written.")
                    raise self._error(absent, place)
                out[...] = np.frombuffer(self.fill, self.decoder.stored)[0]
                continue
            try:
                data = opened.read(offset, nbytes)
                inside = out[(slice(None),) * self.table.axis + (slice(length),)]
                self.decoder.decode(data, skipped, inside)
            except (UnfinishedError, ValueError, RuntimeError) as error:
                raise self._failure(error, opened, place) from error

    def _lengths(self, places: Ints) -> list[int | None]:
        """Return how far chunks fill `out` along the axis: the last of a part may be shorter."""
        parts = self.parts
        if parts is None:
            return [None] * len(places)
        along = places[:, parts.axis] * parts.unit
        numbers = parts.of(along)
        left = parts.starts[numbers] + parts.lengths[numbers] - along
        lengths: list[int | None] = np.minimum(left, parts.unit).tolist()
        return lengths

    def _failure(self, error: Exception, opened: Readable, place: Ints) -> SourceError:
        try:
            opened.compare()  # a file that has changed is reported as changed, not as damaged
        except SourceError as changed:
            error = changed
        return self._error(error, place)

    def _error(self, reason: Exception, place: Ints) -> SourceError:
        """Return the error for a chunk, with its location."""
        table, axis = self.table, self.table.axis
        first, step = int(place[axis]) * self.chunk_shape[axis], self.chunk_shape[axis]
        rows = range(first, min(first + step, self.shape[axis]))
        error = chunk_error(reason, path=table.version.path, key=table.key, rows=rows)
        return error if table.parts is None else table.parts.assign_part(error)
