"""Read stored chunks of a Zarr array, and decode each directly into its place.

No array library is used: it would decode into memory of its own, which no limit counts, and copy.
TensorStore takes 1.0 to 1.3 times as long for epochs of zstd chunks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, NoReturn, TypeAlias

from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import FileVersion
from oocdata.engines.runs import UnfinishedError
from oocdata.engines.source import Keyed, Storage, WithStorage
from oocdata.errors import MissingChunkWarning, MissingFileError, SourceError
from oocdata.formats.anndata import column_names
from oocdata.formats.codecs import (
    chunk_error,
    copy_chunk,
    decompress,
    numbers_of,
    write_chunk,
)
from oocdata.formats.dimensions import decoding_hint, packing, units_of_numbers
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.store import join

_Outs: TypeAlias = Sequence[NDArray[Any]]
_Decode: TypeAlias = Callable[[Any, NDArray[Any]], None]
"""Decode the bytes of a chunk into an array."""
FAILURES = (SourceError, UnfinishedError, OSError, ValueError, RuntimeError, MemoryError)


class ZarrReader(Keyed, WithStorage):
    """Reader of the chunks of a Zarr array; a `oocdata.engines.chunked.ChunkReader`.

    `opened` holds the arguments that open the array again, as in `Storage`.
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
        self.is_warned = missing == "fill"
        """Whether the warning about absent chunks was given, or is not wanted."""
        absent = ""
        if objects.absent_count:
            absent = f"{objects.absent_count} of {objects.count} stored objects"
            self._warn(absent)
            absent = f"; {absent} are absent and read as the fill value"
        # Unless all objects were surveyed, this content can't be told from an earlier one.
        content = objects.digest() if surveyed and self.file else objects.store
        self._key = (type(self), objects.store.path, objects.key, self.file, missing, content)
        attributes = metadata.annotations.attributes
        packed = packing(attributes)
        self._storage = Storage(
            format=f"Zarr v{metadata.version}",
            **objects.where,
            layout=metadata.layout,
            codec=metadata.codecs.text or "none",
            stored_bytes=objects.stored_bytes,
            reading=self.how() + absent + decoding_hint(packed),
            chunks=self.chunk_shape,
            dimensions=metadata.dimensions,
            packed=packed,
            unit=metadata.unit,
            units=units_of_numbers(attributes),
            files=() if self.file is None else (self.file,),
            version=objects.digest().hex() if surveyed else "",
            table_bytes=0 if objects.versions is None else objects.versions.nbytes,
            columns=None if opened is None else column_names(objects.store.path, objects.key),
            opened=opened,
            annotations=metadata.annotate,
        )

    def how(self) -> str:
        """Describe how chunks are read."""
        if any(step.startswith("{") for step in self.objects.metadata.codecs.compressors):
            return "whole chunks, decoded by numcodecs"
        return "whole chunks, each decoded into its place, outside Python's lock"

    def check(self) -> None:
        """Raise if the array was rewritten or deleted: an epoch would mix old and new chunks."""
        self.objects.store.check(self.shape)
        if not isinstance(self.file, FileVersion):
            return
        try:
            status = os.stat(self.file.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                "the array must be there while it is read; it was deleted.", **self.objects.where
            ) from error
        self.file.compare(status, self.objects.where["key"])

    def read_chunks(self, places: Ints, outs: _Outs) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        objects = self.objects

        def read(number: int, place: list[int]) -> Any:
            found = objects.store.fetch(objects.name(place))
            if found is not None:
                objects.expect(number, found[1])
            return found and found[0]

        self._write(places, outs, map(read, objects.object_numbers(places), places.tolist()))

    def _write(self, places: Ints, outs: _Outs, stored: Iterator[Any]) -> None:
        """Decode chunks; `stored` yields the bytes of each, or None for an absent one.

        Each is read just before it is decoded, while it is in the processor's cache.
        """
        absent, decode = [], self._decoder()
        for number, out in enumerate(outs):
            try:
                data = next(stored)
                if data is None:
                    absent.append(number)
                else:
                    decode(data, out)
            except FAILURES as error:
                self._failed(error, places[[number]])
        if absent:
            self.check_absent(places[absent], "some are not there")
            fill = self.objects.metadata.absent
            for number in absent:
                outs[number][...] = fill

    def _decoder(self) -> _Decode:
        metadata = self.objects.metadata
        dtype, codecs = metadata.stored_dtype, metadata.codecs
        native, axes = dtype.newbyteorder("="), codecs.axes or range(len(metadata.shape))
        shape = tuple(metadata.chunk_shape[axis] for axis in axes)
        first, others = next(iter(codecs.compressors), ""), codecs.compressors[:0:-1]

        def decode(data: Any, out: NDArray[Any]) -> None:
            for codec in others:  # before the last step takes memory: two forms at a time
                data = decompress(codec, data, None)
            target = out.view(native).transpose(axes)
            if dtype.hasobject:
                # numcodecs would make an array of so many objects.
                count = int.from_bytes(memoryview(data)[:4], "little")
                if count != prod(shape):
                    raise ValueError(f"it says that it holds {count} texts, not {prod(shape)}")
                texts = numbers_of(first, data).reshape(shape)
                target[...] = texts[tuple(map(slice, target.shape))]
                return
            if first:
                write_chunk(target, dtype, shape, partial(decompress, first, data))
            else:
                copy_chunk(target, dtype, shape, data)

        return decode

    def _warn(self, absent: str) -> None:
        if self.is_warned:
            return
        self.is_warned = True
        where = f" of {self.objects.key!r}" if self.objects.key else ""
        warnings.warn(
            MissingChunkWarning(
                f"{absent} of the Zarr array{where} in '{self.objects.store.path}' are absent, and "
                f"are read as its fill value {self.objects.metadata.fill_value}. Writers leave out "
                'chunks that hold nothing else; if so, open with missing="fill". If chunks may '
                'have been lost, open with missing="error".'
            ),
            stacklevel=2,
        )

    def check_absent(self, places: Ints, problem: str) -> None:
        """Raise an error or warn about absent chunks."""
        if self.missing == "error":
            raise self.objects.missing_error(problem, places)
        self.objects.compare(self.objects.numbers(places))  # raises if they existed at open
        if self.file is None and self.objects.store.read(self._metadata) is None:
            raise MissingFileError(
                f"the array must be there while it is read; its store has no {self._metadata!r}. "
                "It was deleted, or the store is the memory of another process.",
                **self.objects.where,
            )
        self._warn("some chunks")

    def _failed(self, error: Exception, places: Ints) -> NoReturn:
        # A chunk that was rewritten meanwhile is not damaged.
        self.objects.compare(self.objects.numbers(places))
        raise chunk_error(error, **self.objects.where, **self.objects.rows(places)) from error
