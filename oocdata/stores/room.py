"""How much a cache folder holds, and making room in it: what was used longest ago goes first."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

__all__ = ["Room"]

_STEP = 16
"""After so many parts of the limit a process looks how much there is."""

_BLOCK = 4096


class Room:
    """The files of a folder, two levels below it, within a limit.

    Parameters
    ----------
    path : str
    limit : callable
        Returns the bytes on the disk that they may take, as it is by now.
    looked : callable
        Called whenever it was looked how much there is, after files were deleted for room.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     room = Room(path, lambda: 1 << 20, lambda: None)
    ...     room.make(1 << 20), room.make((1 << 20) + 1), room.nbytes
    (True, False, 0)
    """

    def __init__(self, path: str, limit: Callable[[], int], looked: Callable[[], None]) -> None:
        self._path, self._limit, self._looked = path, limit, looked
        self._written = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Look at the folder before the next write, as a child after a fork must."""
        self.lock = threading.Lock()
        self._allowed = 0

    def files(self) -> Iterator[tuple[float, str, int]]:
        """Yield of each file when it was last used, its path, and its bytes on the disk."""
        with suppress(FileNotFoundError), os.scandir(self._path) as folders:
            for folder in folders:
                with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as files:
                    for file in files:
                        with suppress(FileNotFoundError):
                            status = file.stat(follow_symlinks=False)
                            yield status.st_mtime, file.path, status.st_blocks * 512

    @property
    def nbytes(self) -> int:
        """Bytes on the disk that all files take."""
        return sum(nbytes for _, _, nbytes in self.files())

    def make(self, nbytes: int) -> bool:
        """Return whether so many bytes may be written now; if so, there is room for them."""
        nbytes = -(-nbytes // _BLOCK) * _BLOCK
        with self.lock:
            if self._written + nbytes > self._allowed:
                limit = self._limit()
                allowed = max(limit // _STEP, nbytes)
                if allowed > limit or not self._delete(limit - allowed):
                    return False
                self._written, self._allowed = 0, allowed
            self._written += nbytes
        return True

    def keep(self, nbytes: int) -> None:
        """Delete what was used longest ago, until files take so many bytes at most."""
        with self.lock:
            self._delete(nbytes)

    def _delete(self, most: int) -> bool:
        files = sorted(self.files())
        total = sum(nbytes for _, _, nbytes in files)
        for _, path, nbytes in files:
            if total <= most:
                break
            with suppress(OSError):
                os.unlink(path)
            if not os.path.lexists(path):
                total -= nbytes
        self._looked()
        return total <= most
