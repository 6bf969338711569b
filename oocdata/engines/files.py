"""Open the files that sources read, and detect whether a file has changed.

A source opens its files at the first read, and closes them with itself. The version of a file is
compared before and after each read, so that bytes of another version are never delivered.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from oocdata.box import Ints
from oocdata.engines.prefetch import Fetch
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError

_READING = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


class Version(Protocol):
    """Identity of one version of a file, or of an object in a store; hashable."""

    @property
    def path(self) -> str:
        """Absolute path, or URL."""

    @property
    def nbytes(self) -> int:
        """Size of the file."""

    @property
    def modified(self) -> int | None:
        """Nanoseconds since the epoch; None for a file that the process may itself write to."""

    @property
    def cache(self) -> str:
        """Path of the folder that caches data fetched from the file; empty without one."""


class Readable(Protocol):
    """An open file; it stays readable for as long as the object is referenced."""

    @property
    def number(self) -> int:
        """The file descriptor; -1 if there is none, and the methods must be used."""

    def unchanged(self) -> bool:
        """Return whether the file is still the version that was opened."""

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Raise `SourceError` if the file is another version."""

    def read_runs(self, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any) -> None:
        """Read runs of bytes; see `oocdata.engines.runs.read_runs`."""

    def read(self, offset: int, nbytes: int) -> memoryview:
        """Return so many bytes from an offset on, or raise `UnfinishedError`."""


class File(Protocol):
    """One version of a file, or of an object in a store; picklable."""

    @property
    def version(self) -> Version:
        """Version that the file must have."""

    def opened(self) -> Readable:
        """Return the open file."""

    @property
    def is_remote(self) -> bool:
        """Whether the file is behind a slow link, so that prefetching pays."""

    def fetches(self, offsets: Ints, lengths: Ints | int) -> list[Fetch]:
        """Return the fetches for runs of bytes; none for a local file."""


def version_number(status: os.stat_result) -> int:
    """Return a number that identifies the version of a file in all processes; never 0."""
    size, times = status.st_size, (status.st_mtime_ns, status.st_ctime_ns)
    return hash((status.st_dev, status.st_ino, size, *times)) or 1


def read_whole(path: str) -> tuple[bytes, int]:
    """Return the bytes of a file, and its `version_number`; raise if it changes meanwhile."""
    data, before, after = read_bytes(path)
    version = version_number(before)
    if version != version_number(after):
        raise SourceError("the file must not change while it is read; it has changed.", path=path)
    return data, version


def open_at_once(path: str, flags: int = _READING) -> int:
    """Open a file to read it by offset, and return its number; a named pipe is not waited for."""
    try:
        return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except BlockingIOError:  # another process has a lease, which it gives up now
        return os.open(path, flags)


def read_bytes(path: str) -> tuple[bytes, os.stat_result, os.stat_result]:
    """Return the bytes of a file, and its status before and after.

    Python's file objects make more system calls, each of which gives up the GIL.
    """
    try:
        number = open_at_once(path)
        try:
            before = os.fstat(number)
            data = os.pread(number, before.st_size, 0)
            # One system call reads at most 2 GiB.
            while len(data) < before.st_size and (more := os.pread(number, 1 << 30, len(data))):
                data += more
            return data, before, os.fstat(number)
        finally:
            os.close(number)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> SourceError:
    """Return the error for a file that the system does not let us read."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(
            "the file must exist when it is read; it is gone. Was it moved after `open`?", path=path
        )
    return SourceError(f"the file must be readable; {error}.", path=path)


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Identity of one version of a local file, at an absolute path.

    `modified` and `changed` are the times of the last change of the contents and of the inode, in
    nanoseconds since the epoch; None for a file that the process may itself write to.
    """

    path: str
    device: int
    inode: int
    nbytes: int
    modified: int | None
    changed: int | None

    cache: ClassVar[str] = ""
    """Empty: a local file has no cache."""

    @classmethod
    def of(cls, path: str, status: os.stat_result | None = None) -> FileVersion:
        """Return the current version of a file, or the version that its status describes."""
        now = os.stat(path) if status is None else status
        return cls(
            os.path.abspath(path),
            now.st_dev,
            now.st_ino,
            now.st_size,
            now.st_mtime_ns,
            now.st_ctime_ns,
        )

    def writable(self) -> FileVersion:
        """Return this version for a file that its user writes to: the file may change and grow."""
        return replace(self, modified=None, changed=None)

    def matches(self, status: os.stat_result) -> bool:
        """Return whether a file of this status is still this version."""
        if self.modified is None:
            return status.st_size >= self.nbytes
        return (
            status.st_mtime_ns == self.modified
            and status.st_size == self.nbytes
            # Deleting an open file changes its ctime, but not its bytes.
            and (status.st_ctime_ns == self.changed or not status.st_nlink)
            and status.st_ino == self.inode
            and status.st_dev == self.device
        )

    def compare(
        self, status: os.stat_result, key: str | None = None, rows: Iterable[int] | None = None
    ) -> None:
        """Raise SourceError if a file of this status is another version; `rows` are being read."""
        if self.matches(status):
            return
        if status.st_size < self.nbytes:
            raise TruncatedFileError(
                f"the file must hold {self.nbytes} bytes, as when it was opened; it ends at "
                f"{status.st_size}. It was cut short after it was opened.",
                path=self.path,
                key=key,
                rows=rows,
            )
        raise SourceError(
            "the file must be as it was when it was opened; it has changed. Open it again.",
            path=self.path,
            key=key,
            rows=rows,
        )


class Descriptor:
    """A file descriptor that is closed with the last reference to it; by default for reading.

    `version` is the version that the file must have; by default, the version when it is opened.
    """

    __slots__ = ("number", "version")

    def __init__(
        self, path: str, version: FileVersion | None = None, flags: int = _READING
    ) -> None:
        self.number = -1
        try:
            self.number = open_at_once(path, flags | _READING)
            os.set_blocking(self.number, True)  # else io_uring would not wait for the disk
            self.version = version or FileVersion.of(path, os.fstat(self.number))
        except OSError as error:
            raise unreadable(path, error) from error

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)

    @property
    def current_size(self) -> int:
        return os.fstat(self.number).st_size

    def unchanged(self) -> bool:
        return self.version.matches(os.fstat(self.number))

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Raise if the file is another version; see `FileVersion.compare`."""
        self.version.compare(os.fstat(self.number), key, rows)

    def read_runs(self, offsets: Ints, addresses: Ints, lengths: Ints | int, target: Any) -> None:
        read_runs(self.number, offsets, addresses, lengths, target)

    def read(self, offset: int, nbytes: int) -> memoryview:
        """Return so many bytes from an offset on, or raise `UnfinishedError`."""
        memory = np.empty(nbytes, np.uint8)
        self.read_into(memory, offset)
        return memory.data

    def read_into(self, memory: Any, offset: int) -> None:
        """Fill contiguous memory with the bytes from an offset on, or raise `UnfinishedError`."""
        left = memory.nbytes
        while left:
            try:
                got = os.preadv(self.number, [memory], offset)
            except OSError as error:
                if error.errno is None:  # of a signal handler, e.g. TimeoutError
                    raise
                raise UnfinishedError(0, error) from error
            if got == 0:
                raise UnfinishedError(0, None)
            left, offset = left - got, offset + got
            if left:  # one system call reads at most 2 GiB
                memory = np.frombuffer(memory, np.uint8)[got:]


class OpenFile:
    """One version of a file, opened at the first read; picklable.

    The number of open descriptors in the process is bounded. Beyond the bound, the oldest
    descriptor is released, and closes once no read uses it; its file is opened again when needed.
    """

    __slots__ = ("__weakref__", "_descriptor", "version")

    is_remote = False

    def __init__(self, version: FileVersion) -> None:
        self.version = version
        self._descriptor: Descriptor | None = None

    def __reduce__(self) -> tuple[type[OpenFile], tuple[FileVersion]]:
        return (OpenFile, (self.version,))

    def opened(self) -> Descriptor:
        """Return the descriptor, which stays open while it is referenced.

        Raises MissingFileError if the file is gone, and SourceError if it is another version.
        """
        descriptor = self._descriptor
        return self._open() if descriptor is None else descriptor

    def _open(self) -> Descriptor:
        # No lock: if two threads open the file at once, one descriptor is closed after its use.
        descriptor = self._new_descriptor()
        try:
            self._accept(descriptor)
        except SourceError:
            del descriptor  # else the error's traceback would keep it open
            raise
        _make_room()
        self._descriptor = descriptor
        _opened[id(self)] = weakref.ref(self)
        return descriptor

    def _new_descriptor(self) -> Descriptor:
        return Descriptor(self.version.path, self.version)

    def _accept(self, descriptor: Descriptor) -> None:
        """Raise if another version was opened."""
        descriptor.compare()

    def fetches(self, offsets: Ints, lengths: Ints | int) -> list[Fetch]:
        """Return nothing: the file is local."""
        return []

    def __del__(self) -> None:
        _opened.pop(id(self), None)


_opened: dict[int, weakref.ref[OpenFile]] = {}
"""Files with an open descriptor, by identity, oldest first. Each change is one atomic step of the
interpreter, so no lock is needed that threads wait for or that a fork copies."""


_MOST_OPEN = 4096
"""Open descriptors, at most. With 512, rows drawn from 625 Zarr chunk files take 1.4 times as
long."""


def _most_open() -> int:
    """Return how many descriptors may be open; the user and other libraries need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if soft == resource.RLIM_INFINITY else max(1, min(_MOST_OPEN, soft // 4))


def _make_room() -> None:
    """Release the oldest descriptors until one more may be opened."""
    most = _most_open()
    while len(_opened) >= most:
        try:
            file = _opened.pop(next(iter(_opened)))()
        except (KeyError, RuntimeError, StopIteration):  # another thread released one meanwhile
            continue
        if file is not None:
            file._descriptor = None
