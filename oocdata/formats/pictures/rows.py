"""Pictures whose bytes are the rows of an array: in HDF5, Zarr, `.npy`, or records of a file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from oocdata.box import Extent
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError, UnsupportedDtypeError
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.pictures.reader import PictureReader, opened_pictures

__all__ = ["PictureRows", "open_picture_rows"]


class PictureRows(PictureReader):
    """Pictures of one shape, each of which is a row of bytes.

    Parameters
    ----------
    source : Source
        Of ``bytes`` objects or text of a fixed length, a picture each; or of uint8, along whose
        last axis the bytes lie. What follows on the end of a picture is not looked at: rows are as
        long as the longest.
    wanted, element, dtype, kind
        Of `oocdata.formats.pictures.reader.PictureReader`.
    """

    def __init__(
        self,
        source: Source,
        wanted: Pictures,
        element: tuple[int, ...],
        dtype: np.dtype[Any],
        kind: str,
    ) -> None:
        grid = source.shape[:-1] if source.dtype == np.uint8 else source.shape
        super().__init__(grid, wanted, element, dtype, kind)
        self.source, self._element = source, element
        self._row = Extent.of((*[1] * len(grid), *source.shape[len(grid) :]))

    def __reduce__(self) -> Any:
        about = self._element, self.dtype, self.kind
        return PictureRows, (self.source, self.wanted, *about)

    def storage(self) -> Storage:
        """Return how the pictures are stored."""
        stored = self.source.storage()
        names = stored.dimensions[: self.axes]
        return replace(
            stored,
            layout=f"one picture a row; {stored.layout}",
            codec=self.kind if stored.codec == "none" else f"{self.kind}, {stored.codec}",
            reading=f"each picture decoded as a whole, in threads; its bytes: {stored.reading}",
            chunks=self.chunk_shape,
            chunk_bytes=None,
            strides=None,
            dimensions=(*names, *[""] * len(self._element)) if any(names) else (),
            opened=None if stored.opened is None else {**stored.opened, "pictures": self.wanted},
            chunk_scratch=self.most_scratch,
            row_sizes=(),
        )

    def bytes_of(self, place: tuple[int, ...]) -> bytes:
        """Return the bytes of a row."""
        row = np.empty((1, *self._row.lengths), self.source.dtype)
        origin = np.zeros((1, len(self._row.lengths)), np.int64)
        origin[0, : self.axes] = place
        self.source.read(origin, self._row, row)
        data: bytes = row.item() if row.dtype.hasobject else row.tobytes()
        return data

    def concern(self, error: SourceError, place: tuple[int, ...]) -> None:
        """Say which row an error is about."""
        storage = self.source.storage()
        error.path, error.key = error.path or storage.path, error.key or storage.key
        error.concern(place[:1])


def open_picture_rows(source: Source, wanted: Pictures, *, axis: int | str = 0) -> Chunked:
    """Open rows of bytes as the pictures that they encode.

    Parameters
    ----------
    source : Source
        See `PictureRows`.
    wanted : Pictures
    axis : int or str

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        If rows are no bytes.
    oocdata.errors.SourceError
        If the first can't be delivered.

    Examples
    --------
    >>> import io, h5py, tempfile, oocdata as ooc
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         rows = file.create_dataset("images", (3,), h5py.vlen_dtype(np.uint8))
    ...         for number in range(3):
    ...             encoded = io.BytesIO()
    ...             Image.new("RGB", (6, 4), (number, 0, 0)).save(encoded, "PNG")
    ...             rows[number] = np.frombuffer(encoded.getvalue(), np.uint8)
    ...     pictures = ooc.open(f"{folder}/a.h5", "images", pictures=ooc.Pictures())
    ...     pictures, pictures[2][0, 0].tolist()
    (<View: 3 rows of (4, 6, 3) uint8>, [2, 0, 0])
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
    return opened_pictures(partial(PictureRows, source, wanted), axis)
