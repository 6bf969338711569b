"""Files that sources read from: which version of a file it is, and its open descriptor.

A source opens its files when it first reads, and they are closed with it. Read later, the bytes of
a file mean the same or are not delivered: its version is compared before and after each read.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.engines.soon import Soon
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError

__all__ = [
    "Descriptor", "File", "FileVersion", "OpenFile", "Readable", "Version", "version_number",
]  # fmt: skip


class Version(Protocol):
    """What tells one version of a file, or of an object in a store, from another; hashable."""

    @property
    def path(self) -> str:
        """Absolute, or a URL."""
        ...

    @property
    def nbytes(self) -> int:
        """How long it is."""
        ...

    @property
    def modified(self) -> int | None:
        """Nanoseconds since the epoch; None where whoever opened the file may also write to it."""
        ...

    @property
    def cache(self) -> str:
        """The folder in which what is fetched of it is kept; empty without one."""
        ...


class Readable(Protocol):
    """What a read holds of a file: its bytes stay readable for as long as it is referred to."""

    @property
    def number(self) -> int:
        """The kernel's descriptor; -1 where it has none, and only the methods read."""
        ...

    @property
    def held_bytes(self) -> int:
        """How long the file is now."""
        ...

    def unchanged(self) -> bool:
        """Return whether the file is still the version that was opened."""
        ...

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Raise `SourceError` if it is not."""
        ...

    def read_runs(
        self,
        offsets: NDArray[np.int64],
        addresses: NDArray[np.int64],
        lengths: NDArray[np.int64] | int,
        target: Any,
    ) -> None:
        """Read runs of bytes; see `oocdata.engines.runs.read_runs`."""
        ...

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill memory with the bytes from an offset on, or raise `UnfinishedError`."""
        ...


class File(Protocol):
    """One version of a file, or of an object in a store; picklable."""

    @property
    def version(self) -> Version:
        """Which one."""
        ...

    def opened(self) -> Readable:
        """Return what reads it."""
        ...

    def check(self, key: str | None = None) -> None:
        """Raise `SourceError` if it is another version by now."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether it is worth while to ask for bytes before they are read."""
        ...

    def soon(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64] | int) -> list[Soon]:
        """Return what says that runs of bytes will be read; nothing of what is not remote."""
        ...


def version_number(status: os.stat_result) -> int:
    """Return a number that tells a version of a file from others in every process; never 0."""
    size, times = status.st_size, (status.st_mtime_ns, status.st_ctime_ns)
    return hash((status.st_dev, status.st_ino, size, *times)) or 1


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What tells one version of a file from another.

    Attributes
    ----------
    path : str
        Absolute.
    device, inode : int
    nbytes : int
    modified, changed : int or None
        Of the contents and of the inode, in nanoseconds since the epoch; None where whoever opened
        the file may also write to it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     FileVersion.of(file.name).nbytes
    0
    """

    path: str
    device: int
    inode: int
    nbytes: int
    modified: int | None
    changed: int | None

    @classmethod
    def of(cls, path: str, status: os.stat_result | None = None) -> FileVersion:
        """Return the version of the file as it is now, or by the status that it has where open."""
        now = os.stat(path) if status is None else status
        return cls(
            os.path.abspath(path),
            now.st_dev,
            now.st_ino,
            now.st_size,
            now.st_mtime_ns,
            now.st_ctime_ns,
        )

    @property
    def cache(self) -> str:
        """None: it lies on this machine."""
        return ""

    def writable(self) -> FileVersion:
        """Return the version for a file that its user writes to: it may change and grow."""
        return replace(self, modified=None, changed=None)

    def matches(self, status: os.stat_result) -> bool:
        """Return whether a file of this status is still this version."""
        if self.modified is None:
            return status.st_size >= self.nbytes
        return (
            status.st_mtime_ns == self.modified
            and status.st_size == self.nbytes
            # Deleted while it is open, it has another ctime but the same bytes.
            and (status.st_ctime_ns == self.changed or not status.st_nlink)
            and status.st_ino == self.inode
            and status.st_dev == self.device
        )

    def compare(
        self, status: os.stat_result, key: str | None = None, rows: Iterable[int] | None = None
    ) -> None:
        """Raise if a file of this status is another version.

        Parameters
        ----------
        status : os.stat_result
            Of whatever has the file open.
        key : str, optional
        rows : iterable of int, optional
            The rows that are read, for the message.

        Raises
        ------
        oocdata.errors.TruncatedFileError, oocdata.errors.SourceError
        """
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
    """A file descriptor, by default open for reading, which closes with the last reference to it.

    Attributes
    ----------
    number : int
    version : FileVersion
        That the file must be; by default, the one that is opened.
    """

    __slots__ = ("number", "version")

    def __init__(
        self, path: str, version: FileVersion | None = None, flags: int = os.O_RDONLY
    ) -> None:
        self.number = -1
        try:
            self.number = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
            self.version = version or FileVersion.of(path, os.fstat(self.number))
        except FileNotFoundError as error:
            raise MissingFileError(
                "the file must exist when it is read; it is gone. Was it moved after `open`?",
                path=path,
            ) from error
        except OSError as error:
            raise SourceError(f"the file must be readable; {error}.", path=path) from error

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *error: object) -> None:
        return None  # the `with` statement holds a reference until here, which is the whole point

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)

    @property
    def held_bytes(self) -> int:
        """How long the file is now."""
        return os.fstat(self.number).st_size

    def unchanged(self) -> bool:
        """Return whether the file is still the version that it must be."""
        return self.version.matches(os.fstat(self.number))

    def compare(self, key: str | None = None, rows: Iterable[int] | None = None) -> None:
        """Raise if the file is another version; see `FileVersion.compare`."""
        self.version.compare(os.fstat(self.number), key, rows)

    def read_runs(
        self,
        offsets: NDArray[np.int64],
        addresses: NDArray[np.int64],
        lengths: NDArray[np.int64] | int,
        target: Any,
    ) -> None:
        """Read runs of bytes into memory; see `oocdata.engines.runs.read_runs`."""
        read_runs(self.number, offsets, addresses, lengths, target)

    def read_into(self, memory: memoryview, offset: int) -> None:
        """Fill memory with the bytes from an offset on; one call reads 2 GiB at most."""
        done = 0
        while done < len(memory):
            try:
                got = os.preadv(self.number, [memory[done:]], offset + done)
            except OSError as error:
                raise UnfinishedError(0, error) from error
            if got == 0:
                raise UnfinishedError(0, None)
            done += got


class OpenFile:
    """One version of a file, opened when it is first read; picklable.

    Few descriptors are open at a time in the process. The one that was opened first is given up for
    another file, and closes when no read uses it any more; its file opens again when it is needed.

    Parameters
    ----------
    version : FileVersion

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as target:
    ...     file = OpenFile(FileVersion.of(target.name))
    ...     file.check()
    ...     with file.opened() as number:
    ...         os.fstat(number).st_size
    0
    """

    __slots__ = ("__weakref__", "_descriptor", "version")

    is_remote = False
    _flags = os.O_RDONLY

    def __init__(self, version: FileVersion) -> None:
        self.version = version
        self._descriptor: Descriptor | None = None

    def __reduce__(self) -> tuple[type[OpenFile], tuple[FileVersion]]:
        return (OpenFile, (self.version,))

    def opened(self) -> Descriptor:
        """Return the descriptor, which stays open for as long as it is referred to.

        Raises
        ------
        oocdata.errors.MissingFileError, oocdata.errors.SourceError
            If the file is gone, or at its path lies another version.
        """
        found = self._descriptor
        return self._open() if found is None else found

    def _open(self) -> Descriptor:
        # No lock: of two threads that open the file at once, one closes its descriptor after use.
        opened = Descriptor(self.version.path, self.version, self._flags)
        try:
            self._accept(opened)
        except SourceError:
            del opened  # or the error's traceback would keep it open
            raise
        _make_room()
        self._descriptor = opened
        _opened[id(self)] = weakref.ref(self)
        return opened

    def _accept(self, descriptor: Descriptor) -> None:
        """Raise if what was opened is another version."""
        descriptor.compare()

    def check(self, key: str | None = None) -> None:
        """Raise if the file is another version; see `FileVersion.compare`."""
        self.opened().compare(key)

    def soon(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64] | int) -> list[Soon]:
        """Return nothing."""
        return []

    def __del__(self) -> None:
        _opened.pop(id(self), None)


_opened: dict[int, weakref.ref[OpenFile]] = {}
"""Files that have a descriptor, by identity, in the order in which they were opened. Each change is
one step of the interpreter, so no lock is needed: none to wait for, and none to be forked."""


_MOST_OPEN = 4096
"""Rows drawn from 625 chunk files of Zarr take 1.4 times as long where 512 may be open."""


def _most_open() -> int:
    """Return how many descriptors may be open: the user and the libraries need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if soft == resource.RLIM_INFINITY else max(1, min(_MOST_OPEN, soft // 4))


def _make_room() -> None:
    """Give up the descriptors that were opened first, until one more may be opened."""
    most = _most_open()
    while len(_opened) >= most:
        try:
            file = _opened.pop(next(iter(_opened)))()
        except (KeyError, RuntimeError, StopIteration):  # other threads give up some too
            continue
        if file is not None:
            file._descriptor = None
