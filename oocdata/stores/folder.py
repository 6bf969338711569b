"""Keep fetched bytes in a cache folder, within a size limit, for all processes and runs.

A file is named by a digest of its object's name, version and size, so there is neither an index
that could be wrong nor a lock between processes. Objects that are read in parts are files of
`oocdata.stores.entry`, which need a file system that allows holes; whole objects are a `Blob`.

A process measures the folder after it wrote a sixteenth of the limit, and deletes the files used
longest ago, but none of the last minutes. If that makes no room, fetched bytes are not written: a
part of what exceeds the limit stays, instead of all of it being fetched again and again. Each
further process that writes at the same time may exceed the limit by a sixteenth.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from glob import iglob
from hashlib import blake2b
from math import inf
from weakref import WeakValueDictionary

from oocdata.engines.atomic import atomic_file
from oocdata.engines.files import read_bytes
from oocdata.errors import ArgumentError, CacheFolderWarning, SourceError
from oocdata.index import as_path
from oocdata.stores.entry import SECONDS_A_USE, Entry, xxh3
from oocdata.threads import fork_safe

OBJECTS = "oocdata-objects"
"""Name of the folder of the files, all of which may be deleted: nobody else must use it."""

_VARIABLE = "OOCDATA_CACHE_BYTES"

_MOST = 64 << 30
"""Largest default limit of a folder, in bytes."""

_STEP = 16
"""A process measures the folder after it wrote the limit divided by this number."""

_TAIL = struct.Struct("<IQ")
"""The end of a file: the length of the text before it, and the checksum of all before that."""

_CHECKSUM_BYTES = 8


_IN_USE = 120.0
"""Seconds after its last use in which a file is not deleted; use is noted once a minute."""

_FULL_SECONDS = 10.0
"""Seconds after which a process measures a full folder again."""


class CacheFolder:
    """A folder of fetched bytes, created if it does not exist; safe to use after a fork.

    Raise `ArgumentError` if it can't be created, or ``OOCDATA_CACHE_BYTES`` is no number.
    """

    page = 4096
    """Bytes that share a checksum. Fetched ranges begin and end at borders of pages: those of
    64 KB at random offsets become 6 % longer (with pages of 16 KiB, 25 %). The checksums of a GiB
    take 0.25 s of the processor's time, with pages of 64 KiB 0.19 s."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = _absolute(path)
        self._objects = os.path.join(self.path, OBJECTS)
        text = os.environ.get(_VARIABLE)
        if text is not None and (not text.strip().isdecimal() or not int(text)):
            raise ArgumentError(
                f"the environment variable {_VARIABLE} must be a whole number of bytes; got "
                f"{text!r}. Without it, half of the free space is used, at most 64 GiB."
            )
        self._limit = None if text is None else int(text)
        try:
            os.makedirs(self._objects, exist_ok=True)
        except OSError as error:
            raise ArgumentError(
                f"`cache` must be a folder that can be written; '{self.path}' can't: "
                f"{error.strerror or error}."
            ) from error
        self._entries: WeakValueDictionary[str, Entry] = WeakValueDictionary()
        self._stopped = False
        self._left = 0  # bytes that may be written until the folder is measured
        self._full_until = 0.0

    @staticmethod
    def at(path: str | os.PathLike[str]) -> CacheFolder:
        """Return the folder at a path, the same object for all calls in this process."""
        return _folder_at(_absolute(path))

    @property
    def limit(self) -> int:
        """Bytes on the disk that objects may take.

        By default half of the space that is free without the objects, and at most 64 GiB.
        """
        if self._limit is not None:
            return self._limit
        disk = os.statvfs(self.path)
        return min(_MOST, (disk.f_bavail * disk.f_frsize + self.nbytes) // 2)

    # Objects ------------------------------------------------------------------------------------

    def entry(self, name: str, version: str, nbytes: int) -> Entry:
        """Return the entry of a version of an object; the same object while it is in use.

        `name` is the object's URL, without credentials; `version` changes with its content, as an
        ETag does.
        """
        name = json.dumps([name, version, nbytes])
        found = self._entries.get(name)
        if found is None:
            found = self._entries[name] = Entry(self, name, nbytes)
        return found

    def blob(self, name: str, part: str) -> Blob:
        """Return a file of small data about an object, which `name` identifies."""
        return Blob(self, self.file(name, part))

    def file(self, name: str, part: str) -> str:
        """Return the path of a file of an object."""
        stem = blake2b(name.encode(), digest_size=16).hexdigest()
        return f"{self._objects}/{stem[:2]}/{stem}.{part}"

    @property
    def nbytes(self) -> int:
        """Bytes on the disk that objects take."""
        return sum(nbytes for _, _, nbytes in self.files())

    def clear(self) -> int:
        """Delete all files, and return the bytes on the disk that come free."""
        with _room:
            return self._delete(0)

    # Room ---------------------------------------------------------------------------------------

    def files(self) -> Iterator[tuple[float, str, int]]:
        """Yield each file's time of last use, path, and bytes on the disk.

        A time in the future, of a clock that was set back since, is replaced by 0.
        """
        latest = time.time() + SECONDS_A_USE
        for name in iglob("*/*", root_dir=self._objects):
            path = os.path.join(self._objects, name)
            with suppress(FileNotFoundError):
                status = os.lstat(path)
                used = status.st_mtime if status.st_mtime < latest else 0.0
                yield used, path, status.st_blocks * 512

    def make_room(self, nbytes: int) -> bool:
        """Make room for `nbytes` bytes; return whether they may be written."""
        nbytes = -(-nbytes // self.page) * self.page
        if self._stopped:
            return False
        with _room:
            if nbytes > self._left:
                now = time.monotonic()
                if now < self._full_until:
                    return False
                limit = self.limit
                allowed = max(limit // _STEP, nbytes)
                if allowed > limit:
                    return False
                self._delete(limit - allowed, before=time.time() - _IN_USE)
                if self.nbytes > limit - allowed:
                    self._full_until = now + _FULL_SECONDS
                    return False
                self._left = allowed
            self._left -= nbytes
        return True

    def _delete(self, most: int, before: float = inf) -> int:
        """Delete files last used before a time, oldest first, until all take at most `most` bytes.

        Return the bytes on the disk that come free.
        """
        self._full_until, freed, files = 0.0, 0, sorted(self.files())
        total = sum(nbytes for _, _, nbytes in files)
        for used, path, nbytes in files:
            if total - freed <= most or used > before:
                break
            with suppress(OSError):
                os.unlink(path)
                freed += nbytes
        for reference in self._entries.valuerefs():  # one step: other threads add entries meanwhile
            entry = reference()
            if entry is not None:
                entry.forget_deleted()
        return freed

    def stop(self, error: OSError) -> None:
        """Write no more in this process, and warn once."""
        if self._stopped:
            return
        self._stopped = True
        warnings.warn(
            CacheFolderWarning(
                f"the cache folder '{self.path}' can't be written any more: "
                f"{error.strerror or error}. What it holds is used on, and all else is fetched "
                "whenever it is needed. Make room on its disk, or give another folder as `cache`."
            ),
            stacklevel=2,
        )


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
        if xxh3()(data[:-_CHECKSUM_BYTES]) != checksum:
            return None
        if abs(time.time() - status.st_mtime) > SECONDS_A_USE:
            with suppress(OSError):
                os.utime(self.path)  # files used longest ago are deleted first
        self.about = str(data[stop - length : stop], "utf-8")
        return data[: stop - length]

    def write(self, data: bytes) -> None:
        """Write bytes, as `Entry.write` does."""
        about = self.about.encode()
        content = data + about + struct.pack("<I", len(about))
        try:
            if self._folder.make_room(len(content)):
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(self.path))
                with atomic_file(self.path, sync=False) as file:
                    file.write(content)
                    file.write(struct.pack("<Q", xxh3()(content)))
        except OSError as error:
            self._folder.stop(error)


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(as_path("cache", path))


_folder_at = cache(CacheFolder)
_room = fork_safe(threading.Lock())
"""Held while room is made in a folder."""
