"""Files of the cache folder: a header, a checksum for each page, then the pages.

A page is written before its checksum is. So whoever is killed leaves a page absent (its checksum is
0) or whole; what a power cut tears fails its checksum. Several processes may write one file without
a lock: the bytes of a page are the same whoever fetched it.

A segment is a sparse file: what is absent takes no space. Beside segments there are *blobs*, small
files with one checksum: tables of chunks, objects that are read whole.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Descriptor, FileVersion, OpenFile
from oocdata.engines.whole import whole_file
from oocdata.errors import SourceError

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

__all__ = [
    "HEADER", "SECONDS_A_USE", "Blob", "Segment", "data_at", "make", "page_sums", "read_header",
    "unlink_damaged",
]  # fmt: skip

HEADER = 2048
"""Bytes before the checksums: of an object of 2 MiB they share the first block of the disk."""

_ALIGNMENT = 64 << 10
"""Of where pages begin. What lies between takes no space, and rows of 64 KiB that were written one
by one are read in 0.8 of the time that they take at 36 KiB: the kernel's cache has larger parts."""

SECONDS_A_USE = 60.0
"""The time of a file's last use is set so often, at most."""

_MAGIC = b"oocdata cache 1\n"


def data_at(pages: int) -> int:
    """Return where the first of so many pages begins.

    Examples
    --------
    >>> data_at(8192)
    65536
    """
    return -(-(HEADER + 4 * pages) // _ALIGNMENT) * _ALIGNMENT


def page_sums(pages: Iterable[Any]) -> NDArray[np.uint32]:
    """Return a checksum of each page, which is never 0.

    They are the low 32 bits of xxh3-64: a GiB in pages of 4 KiB takes 0.25 s of the processor, with
    google-crc32c 0.41 s, with zlib 0.57 s (copying it: 0.16 s).

    Examples
    --------
    >>> page_sums([b"one", b"two"]).tolist()
    [840950176, 3408501131]
    """
    from xxhash import xxh3_64_intdigest  # not for `import oocdata`

    sums = np.fromiter(map(xxh3_64_intdigest, pages), np.uint64).astype(np.uint32)
    sums[sums == 0] = 1
    return sums


class Segment(OpenFile):
    """The file of a segment, as it was when it was found; a `SourceError` if there is none.

    A file of the same name that was made later is another one, even if it has the same inode: each
    has a random identity in its header, which is compared whenever it is opened. It has all its
    length from when it is made.
    """

    __slots__ = ("_identity", "_touched")

    _flags = os.O_RDWR

    def __init__(self, path: str, nbytes: int) -> None:
        super().__init__(FileVersion(path, 0, 0, nbytes, None, None))
        self._identity: str | None = None
        self._touched = -np.inf  # when the file's time of last use was set
        self.opened()

    def _accept(self, descriptor: Descriptor) -> None:
        found = (read_header(descriptor.number) or {}).get("id")
        self._identity = self._identity or found
        same_length = os.fstat(descriptor.number).st_size == self.version.nbytes
        # One that was deleted in this moment is right: `is_there` is asked next.
        if found is None or found != self._identity or not same_length:
            raise SourceError(
                "the file must be the segment of an object that it was; it is not.",
                path=self.version.path,
            )

    def is_there(self, descriptor: Descriptor) -> bool:
        """Return whether the file that is open still has a name, and all its bytes."""
        status = os.fstat(descriptor.number)
        return status.st_nlink > 0 and status.st_size == self.version.nbytes

    def note_use(self, descriptor: Descriptor) -> None:
        """Set when the file was last used, which says which ones go first."""
        now = time.monotonic()
        if now - self._touched > SECONDS_A_USE:
            self._touched = now
            with suppress(OSError):
                os.utime(descriptor.number)


def make(path: str, header: dict[str, Any], nbytes: int, content: bytes = b"") -> None:
    """Make a file with its header and what follows that, unless another process has made it."""
    short = {  # of a long name, the beginning
        part: header[part].encode("ascii", "replace")[:most].decode()
        for part, most in (("name", 1000), ("version", 200))
    }
    text = json.dumps({**header, **short, "id": secrets.token_hex(8)})
    with suppress(FileExistsError):
        os.mkdir(os.path.dirname(path))  # not its parents: a folder that is gone stays so
    try:
        with whole_file(path, sync=False, replaces=False) as file:
            file.write(_MAGIC + text.encode().ljust(HEADER - len(_MAGIC)) + content)
            file.truncate(nbytes)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path)):
            raise
        # else it was deleted, with all that is there, before it had its name


def unlink_damaged(path: str, nbytes: int) -> None:
    """Delete a file that is no segment, or was cut."""
    with suppress(OSError), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != nbytes or read_header(file.fileno()) is None:
            os.unlink(path)


def read_header(file: int) -> dict[str, Any] | None:
    """Return the header of a file that is open, None where it has none."""
    return _parsed(os.pread(file, HEADER, 0))


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return what the first bytes of a file say as a header, None where they are none."""
    if len(text) < HEADER or not text.startswith(_MAGIC):
        return None
    try:
        header = json.loads(text[len(_MAGIC) :])
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


class Blob:
    """Bytes that are kept with an object, whole or not at all; `part` says which, in letters.

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

    @property
    def is_there(self) -> bool:
        """Whether something is kept, perhaps damaged."""
        return os.path.exists(self._path)

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
        content, header = memoryview(found)[HEADER:], _parsed(found[:HEADER]) or {}
        wanted = header.get("length"), header.get("checksum")
        return content if wanted == (len(content), int(page_sums([content])[0])) else None

    def keep(self, data: bytes) -> bool:
        """Keep bytes as `Entry.write` does; return whether they are kept."""
        header = self._header | {"length": len(data), "checksum": int(page_sums([data])[0])}
        try:
            if self._folder.make_room(HEADER + len(data)):
                with suppress(FileNotFoundError):
                    os.unlink(self._path)
                make(self._path, header, HEADER + len(data), data)
                return True
        except OSError as error:
            self._folder.stop(error)
        return False
