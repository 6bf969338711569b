"""Read and write the files of a cache folder: content, followed by a header that names its object.

An object that is read in parts has a sparse *paged file*: its pages at their offsets in the object,
a checksum for each, and the header; missing pages take no space. A page is written before its
checksum. So if the process is killed, a page is missing (its checksum is 0) or whole; a page that
was torn by a power cut fails its checksum. Several processes may write one file without a lock: a
page has the same bytes whichever process fetched it. *Blobs* are small files with one checksum:
tables of chunks, objects that are read whole.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.atomic import atomic_file
from oocdata.engines.buffers import empty
from oocdata.engines.files import Descriptor
from oocdata.engines.runs import UnfinishedError
from oocdata.errors import SourceError

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = ["HEADER", "SECONDS_A_USE", "Blob", "create_file", "page_checksums", "read_header"]

SECONDS_A_USE = 60.0
"""Least seconds between two updates of a file's time of last use."""

HEADER = 2048
"""Bytes of a header."""

_MAGIC = b"oocdata cache 2\n"


def page_checksums(data: memoryview, page: int) -> NDArray[np.uint32]:
    """Return the checksum of each page; never 0.

    They are the low 32 bits of xxh3-64: a GiB in pages of 4 KiB takes 0.25 s of the processor, with
    google-crc32c 0.41 s, with zlib 0.57 s (copying it: 0.16 s).

    Examples
    --------
    >>> page_checksums(memoryview(b"onetwo"), 3).tolist()
    [840950176, 3408501131]
    """
    from xxhash import xxh3_64_intdigest  # not for `import oocdata`

    pages = (data[at : at + page] for at in range(0, len(data), page))
    sums = np.fromiter(map(xxh3_64_intdigest, pages), np.uint64).astype(np.uint32)
    sums[sums == 0] = 1
    return sums


def create_file(
    path: str, header: dict[str, Any], nbytes: int, content: bytes = b"", *, replaces: bool = False
) -> None:
    """Create a file of `nbytes` bytes, which begin with `content`, and its header.

    Unless it `replaces` an existing file, a file that another process made meanwhile is left.
    """
    short = {  # the beginning of a long name
        part: header[part].encode("ascii", "replace")[:most].decode()
        for part, most in (("name", 1000), ("version", 200))
    }
    text = json.dumps({**header, **short})
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))  # not its parents: a cache folder that is gone stays so
    try:
        with atomic_file(path, sync=False, replaces=replaces) as file:
            file.write(content)
            file.seek(nbytes)
            file.write(_MAGIC + text.encode().ljust(HEADER - len(_MAGIC)))
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path)):
            raise
        # else the folder was cleared before the file had its name


def read_header(path: str) -> dict[str, Any]:
    """Return the header of a file; empty if it has none."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - HEADER))
        return _parsed(file.read())
    return {}


def _parsed(text: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        if len(text) == HEADER and text.startswith(_MAGIC):
            return dict(json.loads(text[len(_MAGIC) :]))
    return {}


class Blob:
    """Bytes that are stored with an object, whole or not at all; `part` names them, in letters.

    Examples
    --------
    >>> import tempfile
    >>> from oocdata.stores.folder import CacheFolder
    >>> with tempfile.TemporaryDirectory() as path:
    ...     blob = Blob(CacheFolder(path), "https://host/a.h5", '"etag"', 10_000, "chunks")
    ...     blob.write(b"a table"), bytes(blob.read())
    (True, b'a table')
    """

    def __init__(self, folder: CacheFolder, name: str, version: str, nbytes: int, part: str):
        self._folder = folder
        self._header = {"name": name, "version": version, "nbytes": nbytes}
        self._path = folder.file(folder.stem(name, version, nbytes), part)
        #: Metadata of the bytes, as JSON; read and written with them.
        self.about: Any = None

    @property
    def is_there(self) -> bool:
        """Whether there is a file, perhaps damaged."""
        return os.path.exists(self._path)

    def read(self) -> memoryview | None:
        """Return the bytes, or None if they are missing or damaged."""
        try:
            file = Descriptor(self._path)
            # Recycled memory: 260 KB took 250 µs of the processor in fresh memory, now 63.
            data = empty((file.current_size,), np.uint8).data
            file.read_into(data, 0)
            if abs(time.time() - os.fstat(file.number).st_mtime) > SECONDS_A_USE:
                os.utime(file.number)  # files used longest ago are deleted first
        except (OSError, SourceError, UnfinishedError):
            return None
        length = max(0, len(data) - HEADER)
        content, header = data[:length], _parsed(bytes(data[length:]))
        self.about = header.get("about")
        return content if header.get("checksum") == self._sum(content) else None

    def write(self, data: bytes) -> bool:
        """Write bytes, as `Entry.write` does; return whether they were written."""
        header = {**self._header, "checksum": self._sum(memoryview(data)), "about": self.about}
        try:
            if self._folder.make_room(HEADER + len(data)):
                create_file(self._path, header, len(data), data, replaces=True)
                return True
        except OSError as error:
            self._folder.stop(error)
        return False

    def _sum(self, data: memoryview) -> int:
        from xxhash import xxh3_64  # not for `import oocdata`

        digest = xxh3_64(repr(self.about).encode())
        digest.update(data)
        return digest.intdigest()
