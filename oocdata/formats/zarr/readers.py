"""Read the chunks of a Zarr array: by TensorStore where it can, by zarr-python where it must.

TensorStore decodes in its own threads, outside the GIL, and is two to six times as fast as
zarr-python, chunk for chunk. It opens places (a folder, an archive, a URL) and knows the codecs of
the specification. zarr-python knows every codec that numcodecs has and any store object, and costs
a fraction of a millisecond for each chunk, which crosses its event loop. Large chunks that are
files in one codec, and chunks in shards, need neither: see `oocdata.formats.zarr.compressed`.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from math import prod
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import FileVersion
from oocdata.engines.source import Storage
from oocdata.errors import (
    DamagedChunkError,
    MissingChunkWarning,
    MissingFileError,
    OocdataError,
    SourceError,
    UnknownFormatError,
)
from oocdata.formats.dimensions import as_stored, packing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.store import join
from oocdata.formats.zarr.tensorstore import (
    INDEX_POOL,
    LIBRARY_ERRORS,
    first_line,
    shared_context,
    tensorstore,
    usable,
)
from oocdata.memory import scratch_share

__all__ = ["Missing", "TensorStoreReader", "ZarrReader", "reader_of"]

Missing: TypeAlias = Literal["error", "fill"]

_SYSTEM_TROUBLE = ("PERMISSION_DENIED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED")
_CHUNKS_AT_ONCE = 64

_Boxes: TypeAlias = Sequence[tuple[slice, ...]]
_Outs: TypeAlias = Sequence[NDArray[Any]]
_Failures: TypeAlias = list[tuple[int, Exception]]
"""Places of chunks among those asked for, and why each can't be read."""


class ZarrReader:
    """Chunks of a Zarr array, read by zarr-python: a `oocdata.engines.chunked.ChunkReader`.

    `opened` opens the array again, as in `Storage`.
    """

    own_threads = False

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        metadata, surveyed = objects.metadata, objects.stored_bytes is not None
        self.objects, self.missing = objects, missing
        name = "zarr.json" if metadata.version == 3 else ".zarray"
        self._metadata = join(objects.key, name)
        self.file = objects.store.file(self._metadata)
        self.shape, self.dtype = metadata.shape, metadata.dtype
        self.chunk_shape = tuple(
            max(1, min(step, length))
            for step, length in zip(metadata.chunk_shape, metadata.shape, strict=True)
        )
        self.told = missing == "fill"
        """Whether absent chunks need not be told, or have been."""
        absent = ""
        if objects.lost:
            absent = f"{objects.lost} of {objects.count} stored objects"
            self._warn(absent)
            absent = f"; {absent} are absent and read as the fill value"
        # Where the objects were not all asked for, nothing tells this content from an earlier one.
        known = objects.digest() if surveyed and self.file else objects.store
        self._identity = (type(self), objects.store.path, objects.key, self.file, missing, known)
        packed = packing(metadata.annotations.attributes)
        self._storage = Storage(
            format=f"Zarr v{metadata.version}",
            **objects.where,
            layout=metadata.layout,
            codec=metadata.codecs.text or "none",
            stored_bytes=objects.stored_bytes,
            reading=self.how() + absent + as_stored(packed),
            chunks=self.chunk_shape,
            dimensions=metadata.dimensions,
            packed=packed,
            files=() if self.file is None else (self.file,),
            version=objects.digest().hex() if surveyed else "",
            table_bytes=0 if objects.versions is None else objects.versions.nbytes,
            opened=opened,
            annotations=metadata.annotate,
        )

    def how(self) -> str:
        """Say how chunks are read."""
        reason = self.objects.store.zarr_only or self.objects.metadata.codecs.zarr_only
        return f"whole chunks, by zarr-python because of {reason}"

    def __getstate__(self) -> dict[str, Any]:
        lazy = ("_by_zarr", "_by_tensorstore")
        return {name: value for name, value in self.__dict__.items() if name not in lazy}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrReader) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._storage

    def check(self) -> None:
        """Raise if the array was written anew or deleted: an epoch would mix old and new chunks."""
        if not isinstance(self.file, FileVersion):
            return
        try:
            status = os.stat(self.file.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                "the array must be there while it is read; it was deleted.", **self.objects.where
            ) from error
        self.file.compare(status, self.objects.where["key"])

    def read_chunks(self, places: NDArray[np.int64], outs: _Outs) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        numbers = self.objects.numbers(places)
        self.objects.note(numbers)
        starts = places * self.chunk_shape
        stops = np.minimum(starts + self.chunk_shape, self.shape)
        boxes = [
            tuple(map(slice, start, stop))
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        self._decode(places, boxes, outs)
        self.objects.compare(numbers)

    def _decode(self, places: NDArray[np.int64], boxes: _Boxes, outs: _Outs) -> None:
        array = self._by_zarr
        self._check_shape("zarr-python", array)  # it may be the user's, and fewer rows would repeat
        failures: _Failures = []
        for number, (box, out) in enumerate(zip(boxes, outs, strict=True)):
            try:
                out[...] = array[box]
            except (OocdataError, MemoryError):
                raise
            except Exception as error:  # each codec fails in its own way: zlib.error, LZMAError, …
                failures.append((number, error))
        if failures:
            first = failures[0][1]
            damaged = not (isinstance(first, OSError) and first.errno is not None)
            self._fail(f"{type(first).__name__}: {first_line(first)}", places, failures, damaged)
        if not self.told or self.missing == "error":
            # zarr-python before 3.2 has no way to tell a missing chunk from one of fill values.
            fill = self.objects.metadata.annotations.fill_value
            fill = fill if self.dtype.kind in "biufc" else None
            alike = places[[number for number, out in enumerate(outs) if _holds_only(fill, out)]]
            absent = alike[self.objects.absent(alike, refuse=self.missing == "error")]
            if len(absent):
                self.check_absent(absent, "some are not there")

    @cached_property
    def _by_zarr(self) -> Any:
        try:
            return self.objects.store.open_by_zarr(self.objects.key, self.objects.metadata.version)
        except OocdataError:
            raise
        except Exception as error:
            raise self._unreadable("zarr-python", error) from error

    def _warn(self, what: str) -> None:
        if self.told:
            return
        self.told = True
        where = f" of {self.objects.key!r}" if self.objects.key else ""
        warnings.warn(
            MissingChunkWarning(
                f"{what} of the Zarr array{where} in '{self.objects.store.path}' are absent, and "
                f"are read as its fill value {self.objects.metadata.fill_value}. Writers leave out "
                'chunks that hold nothing else; if so, open with missing="fill". If chunks may '
                'have been lost, open with missing="error".'
            ),
            stacklevel=2,
        )

    def check_absent(self, places: NDArray[np.int64], what: str) -> None:
        """Refuse or tell chunks that are absent."""
        if self.missing == "error":
            raise self.objects.missing(what, places)
        self.objects.compare(self.objects.numbers(places))  # those that were there at open are lost
        if self.file is None and self.objects.store.read(self._metadata) is None:
            raise MissingFileError(
                f"the array must be there while it is read; its store has no {self._metadata!r}. "
                "It was deleted, or the store is the memory of another process.",
                **self.objects.where,
            )
        self._warn("some chunks")

    def _check_shape(self, library: str, array: Any) -> None:
        """Raise if the array has another shape than at `open`."""
        if array.shape != self.shape:
            now = ValueError(f"its shape is now {array.shape}, no longer {self.shape}")
            raise self._unreadable(library, now)

    def _unreadable(self, library: str, error: Exception) -> UnknownFormatError:
        return UnknownFormatError(
            f"{library} must be able to open the array; {type(error).__name__}: "
            f"{first_line(error)}. Was it moved or written again since `open`?",
            **self.objects.where,
        )

    def _fail(
        self, reason: str, places: NDArray[np.int64], failures: _Failures, damaged: bool
    ) -> NoReturn:
        rows = self.objects.rows(places[[number for number, _ in failures]])
        kind, message = SourceError, f"stored chunks must be readable; {reason}."
        if damaged:
            kind = DamagedChunkError
            message = f"every chunk must decode; {reason}. Restore the file from a copy."
        raise kind(message, **self.objects.where, **rows) from failures[0][1]


class TensorStoreReader(ZarrReader):
    """Chunks of a Zarr array, read by TensorStore (drivers ``zarr`` and ``zarr3``).

    What it refuses, and all after a fork, zarr-python reads.
    """

    own_threads = True

    def how(self) -> str:
        """Say how chunks are read."""
        return "whole chunks, decoded by TensorStore outside Python's lock"

    def _decode(self, places: NDArray[np.int64], boxes: _Boxes, outs: _Outs) -> None:
        if not usable() or self._by_tensorstore is None:
            super()._decode(places, boxes, outs)
            return
        failures = self._read(boxes, outs)
        damaged = [one for one in failures if _status(one[1]) != "NOT_FOUND"]
        if damaged and self.objects.metadata.codecs.compressor == "gzip":
            # TensorStore refuses a gzip stream of several members, as bgzip writes.
            again = [number for number, _ in damaged]
            super()._decode(places[again], [boxes[n] for n in again], [outs[n] for n in again])
            failures = [one for one in failures if _status(one[1]) == "NOT_FOUND"]
        elif damaged:
            error = damaged[0][1]
            self._fail(first_line(error), places, damaged, _status(error) not in _SYSTEM_TROUBLE)
        if failures:
            absent = [number for number, _ in failures]
            self.check_absent(places[absent], first_line(failures[0][1]))
            fill_value = self._by_tensorstore.fill_value
            for number in absent:
                outs[number][...] = 0 if fill_value is None else fill_value

    def _read(self, boxes: _Boxes, outs: _Outs) -> _Failures:
        """Read boxes, some under way at a time; return which failed."""
        library, array = tensorstore(), self._by_tensorstore
        failures: _Failures = []
        # Each takes what is stored and one decoded copy; and each opens a file.
        chunk_bytes = prod(self.chunk_shape) * self.dtype.itemsize
        most = max(1, min(_CHUNKS_AT_ONCE, scratch_share() // (2 * chunk_bytes)))
        started: deque[tuple[int, Any]] = deque()

        def end_first() -> None:
            number, future = started[0]
            error = future.exception()
            started.popleft()
            if error is not None:
                failures.append((number, error))

        try:
            for number, (box, out) in enumerate(zip(boxes, outs, strict=True)):
                if len(started) == most:
                    end_first()
                write = library.array(out).write(array[box].translate_to[0])
                started.append((number, write))
            while started:
                end_first()
        finally:
            # An interrupt doesn't end the waiting: nobody may have `outs` until nothing writes.
            for _, future in started:
                while not future.done():
                    with suppress(KeyboardInterrupt):
                        future.exception()
        return failures

    @cached_property
    def _by_tensorstore(self) -> Any:
        """The array; None where it is refused."""
        metadata = self.objects.metadata
        specification: dict[str, Any] = {
            "driver": "zarr" if metadata.version == 2 else "zarr3",
            "kvstore": self.objects.store.kvstore(self.objects.key),
            # Found in version 0.1.86: this also holds for chunks that a shard's index leaves out.
            "fill_missing_data_reads": self.missing == "fill",
        }
        if metadata.sharded:
            # Decoded chunks are kept by the chunk cache; what this one is for is the shards'
            # indices, which would be read again with every chunk.
            specification["cache_pool"] = INDEX_POOL
        library, context = tensorstore(), shared_context()
        try:
            array = library.open(specification, context=context, read=True, open=True).result()
        except LIBRARY_ERRORS:
            return None  # zarr-python takes more, or says what is wrong
        self._check_shape("TensorStore", array)
        return array


def reader_of(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
) -> ZarrReader:
    """Return the reader of an array: of large files alone, or by TensorStore where that can."""
    if objects.store.is_remote:
        from oocdata.formats.zarr.remote import remote_reader  # not for `import oocdata`

        return remote_reader(objects, missing, opened)
    by_zarr = objects.store.zarr_only or objects.metadata.codecs.zarr_only
    if not by_zarr:
        from oocdata.formats.zarr.compressed import compressed_reader  # of a subclass

        found = compressed_reader(objects, missing, opened)
        if found is not None:
            return found
    return (ZarrReader if by_zarr else TensorStoreReader)(objects, missing, opened)


def _status(error: Exception) -> str:
    return str(error).partition(":")[0]


def _holds_only(fill: Any, chunk: NDArray[Any]) -> bool:
    """Return whether a chunk may be absent: one value, that of `fill` where it is known."""
    first = chunk[(slice(0, 1),) * chunk.ndim] if fill is None else fill
    return bool((chunk == first).all() or (chunk != chunk).all())
