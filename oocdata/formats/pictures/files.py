"""Files that hold a picture each, as one array: its chunks are the pictures."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.decoding import scratch
from oocdata.engines.files import Descriptor, FileVersion
from oocdata.engines.source import Storage, check_dtype
from oocdata.errors import MismatchedPartsError, SourceError
from oocdata.formats.pictures.decoding import (
    as_stored,
    converted,
    damaged,
    format_of_bytes,
    shape_told,
)
from oocdata.formats.pictures.options import Pictures
from oocdata.memory import scratch_share

__all__ = ["PictureFiles", "open_pictures"]

_DECODING = 3
"""Bytes that decoding takes for each one of a picture that is not resized, the file counted."""

_LARGE = 16 << 20
"""Scratch memory from which on it is given back at once. Decoding so much takes 100 ms, this 5."""

_PATH_BYTES = 64
"""Of a path besides its characters: the text's, its place in the tuple, and a file's version."""


class PictureFiles:
    """Pictures of one shape, one a file; a `oocdata.engines.chunked.ChunkReader`.

    Opening it asks for no file: 100,000 of them on a network would take minutes. A file's version
    is noted when it is first read, and compared whenever it is read again.

    Parameters
    ----------
    paths : sequence of str
        Absolute.
    wanted : Pictures or None
        How they are resized and converted; None: as stored.
    element : tuple of int
        Shape of a picture.
    dtype : numpy.dtype
    kind : str
        Format of the first file.
    """

    own_threads = False

    def __init__(
        self,
        paths: Sequence[str],
        wanted: Pictures | None,
        element: tuple[int, ...],
        dtype: np.dtype[Any],
        kind: str,
    ) -> None:
        self.paths, self.wanted, self.kind = tuple(paths), wanted, kind
        self.shape, self.chunk_shape = (len(paths), *element), (1, *element)
        self.dtype = dtype
        self._versions = np.zeros(len(paths), np.int64)  # 0: not read yet

    def __reduce__(self) -> Any:
        # Another process notes the versions as this one did.
        return PictureFiles, (self.paths, self.wanted, self.shape[1:], self.dtype, self.kind)

    def check(self) -> None:
        """Do nothing: each file is compared when it is read."""

    def storage(self) -> Storage:
        """Return how the pictures are stored."""
        return replace(self._storage, chunk_scratch=self._most_scratch)

    @cached_property
    def _storage(self) -> Storage:
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        opened: dict[str, Any] = {"target": list(self.paths)}
        if self.wanted is not None:
            opened["pictures"] = self.wanted
        return Storage(
            "picture files",
            f"{self.paths[0]}{more}",
            layout="one picture a file",
            codec=self.kind,
            reading="each picture decoded as a whole, in threads",
            chunks=self.chunk_shape,
            row_files=self.paths,
            opened=opened,
            table_bytes=sum(map(len, self.paths)) + _PATH_BYTES * len(self.paths),
        )

    @property
    def _most_scratch(self) -> int:
        """Bytes that decoding a picture may take."""
        return max(scratch_share(), _DECODING * prod(self.chunk_shape) * self.dtype.itemsize)

    def read_chunks(self, places: NDArray[np.int64], outs: Sequence[NDArray[Any]]) -> None:
        """Decode pictures; see `oocdata.engines.chunked.ChunkReader.read_chunks`."""
        for row, out in zip(places[:, 0].tolist(), outs, strict=True):
            try:
                self._decode(self._bytes_of(row), out[0])
            except SourceError as error:
                error.path = self.paths[row]
                error.concern([row])
                raise

    def _bytes_of(self, row: int) -> bytes:
        """Return the bytes of a file, if it is the version that was read before."""
        path = self.paths[row]
        with Descriptor(path) as number:
            status = os.fstat(number)
            version = FileVersion.of(path, status)
            which = _which(status)
            if self._versions[row] not in (0, which):
                raise SourceError(
                    "the file must be as it was when it was first read; it has changed. Open it "
                    "again."
                )
            try:
                data = os.pread(number, status.st_size, 0)
            except OSError as error:
                raise SourceError(f"the file must be readable; {error}.") from error
            version.compare(os.fstat(number))
        self._versions[row] = which
        return data

    def _decode(self, data: bytes, out: NDArray[Any]) -> None:
        """Decode a picture into its place."""
        if self.wanted is not None:
            found = converted(data, self.wanted, partial(_room, self._most_scratch))
            if (found.shape, found.dtype) != (out.shape, out.dtype):
                raise self._unlike(f"{found.shape} {found.dtype}")
            out[...] = found
            return
        kind = format_of_bytes(data)
        try:
            with _room(self._most_scratch, len(data) + 2 * out.nbytes):
                as_stored(kind, data, out)
        except ValueError as error:
            if isinstance(error, SourceError):  # some are
                raise
            shape = shape_told(data)
            if shape is None:
                raise damaged(kind, error) from error
            raise self._unlike(f"{shape}" if shape != out.shape else "another dtype") from error

    def _unlike(self, told: str) -> MismatchedPartsError:
        """Return the error of a picture that has not the shape and dtype of the first."""
        return MismatchedPartsError(
            f"every picture must have the shape and dtype of the first, {self.shape[1:]} "
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


def _which(status: os.stat_result) -> int:
    """Return a number that tells a version of a file from others; never 0."""
    told = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hash(told) or 1


def open_pictures(
    paths: Sequence[str], wanted: Pictures | None = None, *, axis: int | str = 0
) -> Chunked:
    """Open picture files as one array: the first is decoded, for the shape of all.

    Parameters
    ----------
    paths : sequence of str
        At least one; in this order.
    wanted : Pictures, optional
    axis : int or str

    Returns
    -------
    Chunked
        Shape (pictures, height, width, channels), or (pictures, height, width) of grey ones.

    Raises
    ------
    oocdata.errors.SourceError
        If the first can't be delivered. Others are first looked at when they are read.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         Image.new("RGB", (6, 4), (number, 0, 0)).save(f"{folder}/{number}.png")
    ...     pictures = ooc.open(f"{folder}/*.png")
    ...     pictures, pictures[2][0, 0].tolist()
    (<View: 3 rows of (4, 6, 3) uint8>, [2, 0, 0])
    """
    here = os.getcwd()
    files = [path if path.startswith("/") else os.path.join(here, path) for path in paths]
    first = PictureFiles(files[:1], wanted, (), np.dtype(np.uint8), "")
    try:
        data = first._bytes_of(0)
        kind = format_of_bytes(data)
        if wanted is None:
            found = as_stored(kind, data)
        else:
            found = converted(data, wanted, partial(_room, first._most_scratch))
    except SourceError as error:
        error.path = files[0]
        error.concern([0])
        raise
    check_dtype(found.dtype, files[0])
    made = Chunked(PictureFiles(files, wanted, found.shape, found.dtype, kind))
    axis_numbers(axis, len(made.shape), made.storage())
    return made
