"""Small things in the cache folder, a file each: tables of chunks, objects that are read whole."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from oocdata.engines.files import Descriptor
from oocdata.stores.segments import HEADER, SECONDS_A_USE, make, page_sums, parsed

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["Blob"]


class Blob:
    """Bytes that are kept with an object, whole or not at all.

    Parameters
    ----------
    folder : CacheFolder
    name, version : str
    nbytes : int
        The object, as of `CacheFolder.entry`.
    part : str
        What is kept: letters and digits.

    Examples
    --------
    >>> import tempfile
    >>> from oocdata.stores.folder import CacheFolder
    >>> with tempfile.TemporaryDirectory() as path:
    ...     blob = Blob(CacheFolder(path), "https://host/a.h5", '"etag"', 10_000, "chunks")
    ...     blob.keep(b"a table"), bytes(blob.read())
    (True, b'a table')
    """

    def __init__(self, folder: CacheFolder, name: str, version: str, nbytes: int, part: str):
        self._folder = folder
        self._header = {"name": name, "version": version, "nbytes": nbytes}
        self._path = folder.file(folder.stem(name, version, nbytes), part)

    def read(self) -> memoryview | None:
        """Return what is kept; None where it is not there, or damaged."""
        try:
            with Descriptor(self._path) as file:
                status = os.fstat(file)
                found = os.pread(file, status.st_size, 0)
                if time.time() - status.st_mtime > SECONDS_A_USE:
                    os.utime(file)  # says which ones go first
        except OSError:
            return None
        content, header = memoryview(found)[HEADER:], parsed(found[:HEADER]) or {}
        right = (header.get("length"), header.get("checksum")) == (len(content), _sum(content))
        return content if right else None

    def keep(self, data: bytes) -> bool:
        """Keep bytes, as far as the folder has room and can be written; see `Entry.write`.

        Returns
        -------
        bool
            Whether they are kept.
        """
        header = self._header | {"length": len(data), "checksum": _sum(data)}
        try:
            if self._folder.make_room(HEADER + len(data)):
                make(self._path, header, HEADER + len(data), data)
                return True
        except OSError as error:
            self._folder.stop(error)
        return False


def _sum(content: bytes | memoryview) -> int:
    return int(page_sums([content])[0])
