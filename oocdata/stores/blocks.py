"""Cache headers and metadata of objects in blocks, and read them as a stream."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

BLOCK = 256 << 10
"""Bytes of metadata that are fetched at a time. A connection that has been in use sends so much in
less than a round trip."""

BEGINNING = 12 << 10
"""Bytes that are fetched when an object is opened: a server sends so much at once over a new
connection, where a block takes five round trips."""

CACHE_BYTES = 16 << 20
"""Bytes that are cached for all objects."""

_lock = threading.Lock()
_pieces: OrderedDict[tuple[ObjectVersion, int], bytes] = OrderedDict()

_nbytes = 0


def cached_piece(version: ObjectVersion, start: int) -> bytes:
    """Return the cached bytes from an offset on; empty if there are none."""
    with _lock:
        found = _pieces.get((version, start), b"")
        if found:
            _pieces.move_to_end((version, start))
        return found


def cached_block_count(version: ObjectVersion) -> int:
    """Return the number of cached blocks that were fetched one by one, after the first.

    Pieces that begin elsewhere than a block were fetched together, and don't count.
    """
    with _lock:
        return sum(1 for of, start in _pieces if of == version and start and not start % BLOCK)


def forget(version: ObjectVersion | None = None) -> None:
    """Drop the pieces of a version from the cache; by default all."""
    global _nbytes
    with _lock:
        for key in [key for key in _pieces if version in (None, key[0])]:
            _nbytes -= len(_pieces.pop(key))


def cache_piece(version: ObjectVersion, start: int, piece: bytes) -> None:
    """Add a piece to the cache, and evict those used longest ago beyond its size."""
    global _nbytes
    with _lock:
        before = _pieces.pop((version, start), b"")
        _pieces[version, start] = piece = max(before, piece, key=len)
        _nbytes += len(piece) - len(before)
        while _nbytes > CACHE_BYTES:
            _nbytes -= len(_pieces.popitem(last=False)[1])


class ObjectStream(io.RawIOBase):
    """An object as a seekable stream of its bytes."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self.file, self._position = file, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, and return it."""
        begin = (0, self._position, self.file.version.nbytes)[whence]
        self._position = max(0, begin + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer, unless the object ends before."""
        out = memoryview(buffer).cast("B")[: max(0, self.file.version.nbytes - self._position)]
        if not out:
            return 0
        if len(out) > BLOCK:  # no metadata
            self.file.fill(out, self._position)
        else:
            out[:] = self.file.part(self._position, len(out))
        self._position += len(out)
        return len(out)
