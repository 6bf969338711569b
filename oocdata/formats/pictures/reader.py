"""Read pictures of one shape, each decoded as a whole from a row of bytes.

Rows of bytes are in HDF5, Zarr, `.npy` or records of a file; or each row is a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.decoding import scratch
from oocdata.engines.dtypes import check_dtype
from oocdata.engines.source import Source, Storage
from oocdata.errors import EmptyError, MismatchedPartsError, SourceError, UnsupportedDtypeError
from oocdata.formats.pictures.checking import format_of_bytes, has_colours
from oocdata.formats.pictures.decoding import (
    damaged,
    decode_converted,
    decode_stored,
    shape_from_header,
)
from oocdata.formats.pictures.options import Pictures
from oocdata.memory import return_freed_memory, scratch_share
from oocdata.threads import cached_property

_DECODING = 3
"""Bytes that decoding takes, for each byte of a picture that is not resized; with the file."""

_LARGE = 16 << 20
"""Bytes of scratch memory from which on it is returned at once: 5 ms, where decoding takes 100."""


@dataclass(frozen=True, eq=False)
class PictureReader:
    """Pictures of one shape as chunks; a `oocdata.engines.chunked.ChunkReader`."""

    source: Source
    """Of the bytes of pictures: ``bytes`` objects or text of a fixed length, a picture each; or
    uint8, with the bytes along the last axis. Bytes after the end of a picture are ignored, since
    rows are as long as the longest."""
    options: Pictures | None
    """How pictures are resized and converted; None to leave them as stored."""
    element: tuple[int, ...]
    """Shape of a picture."""
    dtype: np.dtype[Any]
    kind: str
    """Format of the first picture."""

    own_threads = False

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of pictures along each axis of pictures."""
        shape = self.source.shape
        return shape[:-1] if self.source.dtype == np.uint8 else shape

    @cached_property
    def axes(self) -> int:
        """Number of axes of pictures."""
        return len(self.grid)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array: axes of pictures, then those of a picture."""
        return (*self.grid, *self.element)

    @cached_property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of one picture in the array."""
        return (*[1] * self.axes, *self.element)

    def check(self) -> None:
        """Do nothing: the source of the bytes checks its version."""

    def storage(self) -> Storage:
        """Return how the pictures are stored."""
        stored = self.source.storage()
        decoded, layout = "each picture decoded as a whole, in threads", "one picture a "
        if not stored.row_files:
            decoded, layout = f"{decoded}; its bytes: {stored.reading}", f"{layout}row; "
        names = stored.dimensions[: self.axes]
        pictures = {} if self.options is None else {"pictures": self.options}
        return replace(
            stored,
            layout=layout + stored.layout,
            reading=decoded,
            codec=self.kind if stored.codec == "none" else f"{self.kind}, {stored.codec}",
            chunks=self.chunk_shape,
            chunk_bytes=None,
            strides=None,
            dimensions=(*names, *[""] * len(self.element)) if any(names) else (),
            opened=None if stored.opened is None else {**stored.opened, **pictures},
            chunk_scratch=self.most_scratch,
            row_sizes=(),
        )

    @property
    def most_scratch(self) -> int:
        """Largest scratch memory of a picture, in bytes."""
        return max(scratch_share(), _DECODING * prod(self.element) * self.dtype.itemsize)

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode pictures; see `oocdata.engines.chunked.ChunkReader.read_chunks`."""
        first, rows = (0,) * self.axes, places[:, : self.axes].tolist()
        stored = self._read_together(rows)
        for number, (place, out) in enumerate(zip(rows, outs, strict=True)):
            try:
                data = self._bytes_of([place])[0] if stored is None else stored[number]
                self._decode(data, out[first])
            except SourceError as error:
                self._name(error, place)
                raise

    def first(self) -> tuple[NDArray[Any], str]:
        """Decode the first picture, which gives shape and dtype of all; return its format too."""
        place = [0] * self.axes
        try:
            [data] = self._bytes_of([place])
            kind, options = self._how(data)
            if options is None:
                return decode_stored(kind, data), kind
            return decode_converted(data, options, partial(_room, self.most_scratch)), kind
        except SourceError as error:
            self._name(error, place)
            raise

    def _read_together(self, places: list[list[int]]) -> list[bytes] | None:
        """Return the bytes of pictures, read by one call; None to read one after another.

        JPEGs of 96 x 96 in HDF5 and TFRecord take 0.4 of the processor's time so. Pictures to be
        resized may be far larger than what is decoded of them.
        """
        if len(places) > 1 and not (self.options and self.options.size):
            with suppress(SourceError):  # then it is found whose error it is
                return self._bytes_of(places)
        return None

    def _bytes_of(self, places: list[list[int]]) -> list[bytes]:
        within = self.source.shape[self.axes :]
        rows = np.empty((len(places), *[1] * self.axes, *within), self.source.dtype)
        origins = np.array([[*place, *[0] * len(within)] for place in places])
        self.source.read(origins, Extent.of(rows.shape[1:]), rows)
        if rows.dtype.hasobject:
            objects: list[bytes] = rows.ravel().tolist()
            return objects
        return [row.tobytes() for row in rows]

    def _name(self, error: SourceError, place: list[int]) -> None:
        storage = self.source.storage()
        path = storage.row_files[place[0]] if storage.row_files else storage.path
        error.path, error.key = error.path or path, error.key or storage.key
        error.set_rows(place[:1])

    def _how(self, data: bytes) -> tuple[str, Pictures | None]:
        """Return the format of a picture, and how Pillow converts it; None to decode it as stored.

        A JPEG that stays as it is has the same numbers from both decoders.
        """
        kind, options = format_of_bytes(data), self.options
        stays = options is None or (kind == "JPEG" and not options.size)
        if stays and has_colours(kind, data, options.channels if options else None):
            return kind, None
        return kind, options or Pictures()

    def _decode(self, data: bytes, out: NDArray[Any]) -> None:
        kind, options = self._how(data)
        if options is None:
            try:
                with _room(self.most_scratch, len(data) + 2 * out.nbytes):
                    decode_stored(kind, data, out)
                return
            except ValueError as error:
                if isinstance(error, SourceError):  # some derive from ValueError
                    raise
                shape = shape_from_header(data)
                if shape is None:
                    raise damaged(kind, error) from error
                difference = f"{shape}" if shape != out.shape else "another dtype"
                raise self._mismatch(difference) from error
        found = decode_converted(data, options, partial(_room, self.most_scratch))
        if (found.shape, found.dtype) != (out.shape, out.dtype):
            raise self._mismatch(f"{found.shape} {found.dtype}")
        out[...] = found

    def _mismatch(self, difference: str) -> MismatchedPartsError:
        return MismatchedPartsError(
            f"every picture must have the shape and dtype of the first, {self.element} "
            f"{self.dtype}; this one has {difference}. To make them alike give "
            "`pictures` a size and channels; or leave its row out of the view: `filter`."
        )


@contextmanager
def _room(most: int, nbytes: int) -> Iterator[None]:
    """Count scratch memory during a block; raise if a picture takes more than `most` bytes."""
    if nbytes > most:
        raise SourceError(
            f"decoding a picture must take at most {most} bytes, a quarter of the memory for "
            f"reading; this one takes {nbytes}. Give more: "
            f"ooc.set_memory({4 * nbytes})."
        )
    with scratch(nbytes):
        try:
            yield
        finally:
            if nbytes >= _LARGE:
                return_freed_memory()


def open_picture_rows(source: Source, options: Pictures | None, *, axis: int | str = 0) -> Chunked:
    """Open rows of bytes, see `PictureReader`, as the pictures that they encode.

    The first picture is decoded, and gives the shape of all; others are checked when they are read.
    """
    storage, dtype = source.storage(), source.dtype
    if not (dtype.kind in "OS" or (dtype == np.uint8 and len(source.shape) > 1)):
        raise UnsupportedDtypeError(
            "`pictures` must be given for picture files, or rows of the bytes of such (of varying "
            f"length, or uint8 of shape (rows, bytes)); got {dtype} of shape {source.shape}. "
            "Pictures as numbers are opened without it.",
            path=storage.path,
            key=storage.key,
        )
    reader = PictureReader(source, options, (), np.dtype(np.uint8), "")
    if not prod(reader.grid):
        raise EmptyError("there must be a picture, whose shape is that of all; got none.")
    found, kind = reader.first()
    check_dtype(found.dtype, storage.path, storage.key)
    pictures = Chunked(replace(reader, element=found.shape, dtype=found.dtype, kind=kind))
    axis_numbers(axis, len(pictures.shape), pictures.storage())
    return pictures
