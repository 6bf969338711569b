"""Keep small data in a cache folder, each in a file of its own: whole or not at all."""

from __future__ import annotations

import os
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oocdata.engines.atomic import atomic_file
from oocdata.engines.files import read_bytes
from oocdata.errors import SourceError

if TYPE_CHECKING:
    from oocdata.stores.folder import CacheFolder

SECONDS_A_USE = 60.0
"""Least seconds between two updates of a file's time of last use."""

_TAIL = struct.Struct("<IQ")
"""The end of a file: the length of the text before it, and the checksum of all before that."""

_CHECKSUM_BYTES = 8


class Blob:
    """A file of bytes, followed by a text: a table of chunks, or an object that is read whole."""

    def __init__(self, folder: CacheFolder, path: str) -> None:
        self._folder, self.path = folder, path
        #: Text about the bytes; read and written with them.
        self.about = ""

    def read(self) -> memoryview | None:
        """Return the bytes, or None if they are missing or damaged."""
        try:
            content, status, _ = read_bytes(self.path)
            data = memoryview(content)
            stop = len(data) - _TAIL.size
            length, checksum = _TAIL.unpack(data[max(0, stop) :])
        except (SourceError, struct.error):
            return None
        if _checksum(data[:-_CHECKSUM_BYTES]) != checksum:
            return None
        if abs(time.time() - status.st_mtime) > SECONDS_A_USE:
            with suppress(OSError):
                os.utime(self.path)  # files used longest ago are deleted first
        self.about = str(data[stop - length : stop], "utf-8")
        return data[: stop - length]

    def write(self, data: bytes) -> bool:
        """Write bytes, as `Entry.write` does; return whether they were written."""
        about = self.about.encode()
        content = data + about + struct.pack("<I", len(about))
        try:
            if self._folder.make_room(len(content)):
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(self.path))
                with atomic_file(self.path, sync=False) as file:
                    file.write(content)
                    file.write(struct.pack("<Q", _checksum(content)))
                return True
        except OSError as error:
            self._folder.stop(error)
        return False


def _checksum(data: Any) -> int:
    from xxhash import xxh3_64_intdigest  # not for `import oocdata`

    return xxh3_64_intdigest(data)
