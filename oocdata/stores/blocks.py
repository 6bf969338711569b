"""Headers and metadata: pieces that are fetched once, kept a while and counted; as a stream."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from oocdata.engines.runs import UnfinishedError
from oocdata.stores.versions import ObjectVersion

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = [
    "BEGINNING", "BLOCK", "KEPT", "ObjectStream", "blocks_of_metadata", "forget", "keep", "kept",
]  # fmt: skip

BLOCK = 256 << 10
"""Of metadata, so much is fetched at a time; on a connection that has been in use it is sent in
less than a round trip takes."""

BEGINNING = 12 << 10
"""What is fetched of an object when it is opened: a server sends so much at once on a connection
that is new. A block takes it five round trips then."""

KEPT = 16 << 20
"""Bytes of pieces that are kept, for all objects."""

_lock = threading.Lock()
_pieces: OrderedDict[tuple[ObjectVersion, int], bytes] = OrderedDict()
_held = 0


def kept(version: ObjectVersion, start: int) -> bytes:
    """Return the piece that begins at a place, as far as it is kept: perhaps nothing."""
    with _lock:
        found = _pieces.get((version, start), b"")
        if found:
            _pieces.move_to_end((version, start))
        return found


def blocks_of_metadata(version: ObjectVersion) -> int:
    """Return how many blocks are kept besides the first, which were fetched one by one.

    Pieces that begin elsewhere came together.
    """
    with _lock:
        return sum(1 for of, start in _pieces if of == version and start and not start % BLOCK)


def forget(version: ObjectVersion | None = None) -> None:
    """Keep no pieces of a version any more; by default of none."""
    global _held
    with _lock:
        for key in [key for key in _pieces if version in (None, key[0])]:
            _held -= len(_pieces.pop(key))


def keep(version: ObjectVersion, start: int, piece: bytes) -> None:
    """Keep a piece until as many bytes of others were fetched as are kept."""
    global _held
    with _lock:
        before = _pieces.pop((version, start), b"")
        _pieces[version, start] = piece = max(before, piece, key=len)
        _held += len(piece) - len(before)
        while _held > KEPT:
            _held -= len(_pieces.popitem(last=False)[1])


class ObjectStream(io.RawIOBase):
    """The bytes of an object, which may be read at any place."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self.file, self._place = file, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place that is read next."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Choose the place that is read next, and return it."""
        begin = (0, self._place, self.file.version.nbytes)[whence]
        self._place = max(0, begin + offset)
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Fill all of the buffer, as far as the object goes."""
        out = memoryview(buffer).cast("B")[: max(0, self.file.version.nbytes - self._place)]
        if not out:
            return 0
        if len(out) > BLOCK:  # no metadata
            try:
                self.file.read_into(out, self._place)
            except UnfinishedError as error:
                raise error.cause or error from None
            self._place += len(out)
            return len(out)
        out[:] = self.file.part(self._place, len(out))
        self._place += len(out)
        return len(out)
