"""Open picture files as one array, a picture each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.chunked import Chunked
from oocdata.engines.files import read_whole
from oocdata.engines.source import Storage, WithStorage
from oocdata.errors import SourceError
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.pictures.reader import open_picture_rows

_PATH_BYTES = 64
"""Bytes of a path in addition to its characters: of the str, the tuple, and the file's version."""


class PictureFiles(WithStorage):
    """Source of the bytes of files, a row each, as objects.

    Opening looks up no file: 100,000 of them on a network would take minutes. A file's version is
    noted when it is first read, and compared whenever it is read again. Paths are absolute.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths, self.shape, self.dtype = tuple(paths), (len(paths),), np.dtype(object)
        self._versions = np.zeros(len(paths), np.int64)  # 0: not read yet
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        self._storage = Storage(
            "picture files",
            f"{self.paths[0]}{more}",
            layout="file",
            codec="none",
            row_files=self.paths,
            opened={"target": list(self.paths)},
            table_bytes=sum(map(len, paths)) + _PATH_BYTES * len(paths),
        )

    def __reduce__(self) -> Any:
        return PictureFiles, (self.paths,)  # another process notes the versions as this one did

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        rows = (origins + np.arange(extent.lengths[0]) * extent.strides[0]).ravel().tolist()
        found = np.empty(len(rows), object)
        found[:] = [self.bytes_of(row) for row in rows]
        out[...] = found.reshape(out.shape)

    def bytes_of(self, row: int) -> bytes:
        """Return the bytes of a file; raise if it is not the version that was read before."""
        path = self.paths[row]
        try:
            data, version = read_whole(path)
            if self._versions[row] not in (0, version):
                raise SourceError(
                    "the file must be as it was when it was first read; it has changed. Open it "
                    "again.",
                    path=path,
                )
        except SourceError as error:
            error.set_rows([row])
            raise
        self._versions[row] = version
        return data


def open_pictures(
    paths: Sequence[str], options: Pictures | None = None, *, axis: int | str = 0
) -> Chunked:
    """Open picture files, in this order, as one array; the first is decoded.

    It gives the shape of all: (pictures, height, width, channels), without channels if grey.
    """
    here = os.getcwd()
    files = [path if path.startswith("/") else os.path.join(here, path) for path in paths]
    return open_picture_rows(PictureFiles(files), options, axis=axis)
