"""Pictures whose bytes are the rows of an array: in HDF5, Zarr, `.npy`, or records of a file."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from oocdata.box import Extent
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError, UnsupportedDtypeError
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.pictures.reader import opened_pictures

__all__ = ["PictureRows", "open_picture_rows"]


@dataclass(frozen=True, eq=False)
class PictureRows:
    """The bytes of pictures that are rows of an array; `EncodedPictures`.

    Attributes
    ----------
    source : Source
        Of ``bytes`` objects or text of a fixed length, a picture each; or of uint8, along whose
        last axis the bytes lie. What follows on the end of a picture is not looked at: rows are as
        long as the longest.
    """

    source: Source

    @property
    def grid(self) -> tuple[int, ...]:
        """How many pictures there are along each axis."""
        shape = self.source.shape
        return shape[:-1] if self.source.dtype == np.uint8 else shape

    @property
    def stored(self) -> Storage:
        """How the rows are stored."""
        stored = self.source.storage()
        return replace(
            stored,
            layout=f"one picture a row; {stored.layout}",
            reading=f"each picture decoded as a whole, in threads; its bytes: {stored.reading}",
        )

    def bytes_of(self, place: tuple[int, ...]) -> bytes:
        """Return the bytes of a row."""
        within = self.source.shape[len(place) :]
        row = np.empty((1, *[1] * len(place), *within), self.source.dtype)
        origin = np.array([[*place, *[0] * len(within)]])
        self.source.read(origin, Extent.of(row.shape[1:]), row)
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
    return opened_pictures(PictureRows(source), wanted, axis)
