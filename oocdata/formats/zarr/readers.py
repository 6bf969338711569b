"""Read the chunks of a Zarr array by zarr-python, which knows every codec and any store object.

It costs a fraction of a millisecond for each chunk, which crosses its event loop. What is decoded
without it: see `oocdata.formats.zarr.direct`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

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
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.store import join

__all__ = ["ZarrReader", "first_line"]

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
        return f"whole chunks, by zarr-python because of {self.objects.zarr_only}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_by_zarr"}

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
        self._decode(places, outs)
        self.objects.compare(numbers)

    def _decode(self, places: NDArray[np.int64], outs: _Outs) -> None:
        starts = places * self.chunk_shape
        stops = np.minimum(starts + self.chunk_shape, self.shape)
        boxes = [
            tuple(map(slice, start, stop))
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        array = self._by_zarr
        if array.shape != self.shape:  # it may be the user's, and fewer rows would repeat
            now = ValueError(f"its shape is now {array.shape}, no longer {self.shape}")
            raise self._unreadable(now)
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
            raise self._unreadable(error) from error

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

    def _unreadable(self, error: Exception) -> UnknownFormatError:
        return UnknownFormatError(
            f"zarr-python must be able to open the array; {type(error).__name__}: "
            f"{first_line(error)}. Was it moved or written again since `open`?",
            **self.objects.where,
        )

    def _fail(
        self, reason: str, places: NDArray[np.int64], failures: _Failures, damaged: bool
    ) -> NoReturn:
        # What was written anew meanwhile is not damaged.
        self.objects.compare(self.objects.numbers(places))
        rows = self.objects.rows(places[[number for number, _ in failures]])
        kind, message = SourceError, f"stored chunks must be readable; {reason}."
        if damaged:
            kind = DamagedChunkError
            message = f"every chunk must decode; {reason}. Restore the file from a copy."
        raise kind(message, **self.objects.where, **rows) from failures[0][1]


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


def _holds_only(fill: Any, chunk: NDArray[Any]) -> bool:
    """Return whether a chunk may be absent: one value, that of `fill` where it is known."""
    first = chunk[(slice(0, 1),) * chunk.ndim] if fill is None else fill
    return bool((chunk == first).all() or (chunk != chunk).all())
