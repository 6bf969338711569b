"""Pictures of one shape, each decoded as a whole from its bytes, wherever those lie."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.decoding import scratch
from oocdata.engines.source import Storage, check_dtype
from oocdata.errors import EmptyError, MismatchedPartsError, SourceError
from oocdata.formats.pictures.decoding import (
    as_stored,
    converted,
    damaged,
    format_of_bytes,
    shape_told,
)
from oocdata.formats.pictures.options import Pictures
from oocdata.memory import scratch_share

__all__ = ["PictureReader", "opened_pictures"]

_DECODING = 3
"""Bytes that decoding takes for each one of a picture that is not resized, the file counted."""

_LARGE = 16 << 20
"""Scratch memory from which on it is given back at once. Decoding so much takes 100 ms, this 5."""


class EncodedPictures(Protocol):
    """Where the bytes of pictures lie.

    Attributes
    ----------
    grid : tuple of int
        How many pictures there are along each axis that numbers them.
    stored : Storage
        Without what is known of pictures once they are decoded.
    """

    @property
    def grid(self) -> tuple[int, ...]: ...

    @property
    def stored(self) -> Storage: ...

    def bytes_of(self, place: tuple[int, ...]) -> bytes:
        """Return the bytes of a picture."""
        ...

    def concern(self, error: SourceError, place: tuple[int, ...]) -> None:
        """Say which picture an error is about."""
        ...


@dataclass(frozen=True, eq=False)
class PictureReader:
    """Pictures of one shape as chunks; a `oocdata.engines.chunked.ChunkReader`.

    Attributes
    ----------
    encoded : EncodedPictures
    wanted : Pictures or None
        How they are resized and converted; None: as stored.
    element : tuple of int
        Shape of a picture.
    dtype : numpy.dtype
    kind : str
        Format of the first.
    """

    encoded: EncodedPictures
    wanted: Pictures | None
    element: tuple[int, ...]
    dtype: np.dtype[Any]
    kind: str

    own_threads = False

    @property
    def axes(self) -> int:
        """How many axes number the pictures."""
        return len(self.encoded.grid)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array: pictures, and what each of them has."""
        return (*self.encoded.grid, *self.element)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Of a picture in the array."""
        return (*[1] * self.axes, *self.element)

    def check(self) -> None:
        """Do nothing: bytes are compared when they are read."""

    def storage(self) -> Storage:
        """Return how the pictures are stored."""
        stored = self.encoded.stored
        names = stored.dimensions[: self.axes]
        pictures = {} if self.wanted is None else {"pictures": self.wanted}
        return replace(
            stored,
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
        """Bytes that decoding a picture may take."""
        return max(scratch_share(), _DECODING * prod(self.chunk_shape) * self.dtype.itemsize)

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode pictures; see `oocdata.engines.chunked.ChunkReader.read_chunks`."""
        for place, out in zip(places[:, : self.axes].tolist(), outs, strict=True):
            try:
                self._decode(self.encoded.bytes_of(tuple(place)), out[(0,) * self.axes])
            except SourceError as error:
                self.encoded.concern(error, tuple(place))
                raise

    def first(self) -> tuple[NDArray[Any], str]:
        """Decode the first picture, whose shape and dtype all have; return its format too."""
        place = (0,) * self.axes
        try:
            data = self.encoded.bytes_of(place)
            kind = format_of_bytes(data)
            if self.wanted is None:
                return as_stored(kind, data), kind
            return converted(data, self.wanted, partial(_room, self.most_scratch)), kind
        except SourceError as error:
            self.encoded.concern(error, place)
            raise

    def _decode(self, data: bytes, out: NDArray[Any]) -> None:
        """Decode a picture into its place."""
        kind, wanted = format_of_bytes(data), self.wanted
        # A JPEG of which nothing is to be made has the same numbers by both decoders.
        as_it_is = kind == "JPEG" and wanted and not wanted.size and wanted.channels in (None, 3)
        if wanted is None or as_it_is:
            try:
                with _room(self.most_scratch, len(data) + 2 * out.nbytes):
                    as_stored(kind, data, out)
                return
            except ValueError as error:
                if isinstance(error, SourceError):  # some are
                    raise
                shape = shape_told(data)
                if shape is None:
                    raise damaged(kind, error) from error
                if wanted is None:
                    told = f"{shape}" if shape != out.shape else "another dtype"
                    raise self._unlike(told) from error
        assert wanted is not None
        found = converted(data, wanted, partial(_room, self.most_scratch))
        if (found.shape, found.dtype) != (out.shape, out.dtype):
            raise self._unlike(f"{found.shape} {found.dtype}")
        out[...] = found

    def _unlike(self, told: str) -> MismatchedPartsError:
        """Return the error of a picture that has not the shape and dtype of the first."""
        return MismatchedPartsError(
            f"every picture must have the shape and dtype of the first, {self.element} "
            f"{self.dtype}; this one has {told}. To make them alike give "
            "pictures=ooc.Pictures(size=(height, width), channels=3); or leave its row out of the "
            "view: `filter`."
        )


@contextmanager
def _room(most: int, nbytes: int) -> Iterator[None]:
    """Count scratch memory; raise if a picture takes more than there is."""
    if nbytes > most:
        raise SourceError(
            f"decoding a picture must take at most {most} bytes, a quarter of the memory for "
            f"reading; this one takes {nbytes}. Give more: ooc.set_memory({4 * nbytes}); or, of a "
            "large JPEG, ooc.Pictures(size=…, reduced=True)."
        )
    with scratch(nbytes):
        try:
            yield
        finally:
            if nbytes >= _LARGE:
                _give_back()


def _give_back() -> None:
    """Give the system what malloc keeps of freed memory: as much as a picture, for each thread."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU library
    if trim is not None:
        trim(0)


def opened_pictures(encoded: EncodedPictures, wanted: Pictures | None, axis: int | str) -> Chunked:
    """Return pictures as one array: the first is decoded, for the shape of all.

    Raises
    ------
    oocdata.errors.SourceError
        If the first can't be delivered. Others are first looked at when they are read.
    oocdata.errors.EmptyError
        If there is none.
    """
    if not prod(encoded.grid):
        raise EmptyError("there must be a picture, whose shape is that of all; got none.")
    reader = PictureReader(encoded, wanted, (), np.dtype(np.uint8), "")
    found, kind = reader.first()
    check_dtype(found.dtype, encoded.stored.path, encoded.stored.key)
    pictures = Chunked(replace(reader, element=found.shape, dtype=found.dtype, kind=kind))
    axis_numbers(axis, len(pictures.shape), pictures.storage())
    return pictures
