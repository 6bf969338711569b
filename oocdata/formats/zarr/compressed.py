"""Read the large chunks of a Zarr folder as files, and decode each into its place.

TensorStore decodes into memory of its own, and copies from there. For a chunk of 31 MB by Blosc
that takes 1.5 times as much of the processor's time; and malloc keeps as much as a chunk for each
of its threads, which no limit counts: 190 MB more than was stated, where six of them had decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor
from oocdata.engines.runs import UnfinishedError
from oocdata.errors import MissingFileError, SourceError
from oocdata.formats.codecs import decompress, room_for, write_chunk
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.store import Folder

__all__ = ["CompressedReader", "is_compressed"]

_LARGE = 1 << 19
"""Bytes of a chunk. At this size TensorStore takes 1.2 times as much of the processor's time as
this reader, and as much at 64 KiB. At 16 KiB, where Python's calls for each chunk weigh, it takes
less than half of the time that passes."""


class CompressedReader(ZarrReader):
    """Chunks that are files of their own, of elements in C order, compressed by one codec."""

    def how(self) -> str:
        """Say how chunks are read."""
        return "whole chunks, each decoded into its place, outside Python's lock"

    def _decode(
        self, places: NDArray[np.int64], boxes: Sequence[Any], outs: Sequence[NDArray[Any]]
    ) -> None:
        metadata = self.objects.metadata
        assert metadata.plain_dtype is not None
        absent: list[int] = []
        for number, (place, out) in enumerate(zip(places.tolist(), outs, strict=True)):
            try:
                decode = partial(decompress, metadata.codecs.compressor, self._stored(place))
                write_chunk(out, metadata.plain_dtype, metadata.object_shape, decode)
            except MissingFileError:
                absent.append(number)
            except (SourceError, UnfinishedError, ValueError, RuntimeError) as error:
                # What was written anew meanwhile is not damaged.
                self.objects.compare(self.objects.numbers(places))
                reason: BaseException = error
                if isinstance(error, UnfinishedError):
                    reason = error.cause or EOFError("it ends before its bytes do")
                damaged = isinstance(error, ValueError | RuntimeError)
                self._fail(str(reason).rstrip("."), places, [(number, error)], damaged)
        if absent:
            self.check_absent(places[absent], "some are not there")
            for number in absent:
                outs[number][...] = metadata.annotations.fill_value or 0

    def _stored(self, place: Sequence[int]) -> memoryview:
        """Return the bytes of a chunk's file."""
        file = Descriptor(f"{self.objects.store.path}/{self.objects.name(place)}")
        nbytes = file.version.nbytes
        memory = room_for(nbytes)[:nbytes]
        file.read_into(memory, 0)
        return memory


def is_compressed(objects: Objects) -> bool:
    """Return whether chunks are files that `CompressedReader` decodes better than a library."""
    metadata = objects.metadata
    large = prod(metadata.object_shape) * metadata.dtype.itemsize >= _LARGE
    plain = metadata.plain_dtype is not None and bool(metadata.codecs.compressor)
    return large and plain and metadata.fill_known and isinstance(objects.store, Folder)
