"""An object as a stream, for whoever reads headers and metadata."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from oocdata.engines.runs import UnfinishedError
from oocdata.stores.blocks import BLOCK

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["ObjectStream"]


class ObjectStream(io.RawIOBase):
    """The bytes of an object, which may be read at any place.

    Parameters
    ----------
    file : StoredFile
    """

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
