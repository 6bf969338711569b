"""What a file was when it was opened: read later, its bytes mean the same or are not delivered."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError, TruncatedFileError
from oocdata.sources.handles import Descriptor, handle

__all__ = ["FileStamp"]


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one version of a file from the next.

    Attributes
    ----------
    path : str
        Absolute.
    nbytes : int
    modified : int or None
        Nanoseconds since the epoch; None where whoever opened it may also write to it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     FileStamp.of(file.name).nbytes
    0
    """

    path: str
    nbytes: int
    modified: int | None

    @classmethod
    def of(cls, path: str) -> FileStamp:
        """Return the stamp of the file as it is now."""
        status = os.stat(path)
        return cls(os.path.abspath(path), status.st_size, status.st_mtime_ns)

    def descriptor(self) -> Descriptor:
        """Return this process's open descriptor.

        Raises
        ------
        oocdata.errors.MissingFileError, oocdata.errors.SourceError
            If the file is gone, or is no longer what it was.
        """
        return handle(self, self._open)

    def _open(self) -> Descriptor:
        opened = Descriptor(self.path)
        try:
            self.check(opened)
        except SourceError:
            opened.close()  # the error's traceback would keep it open
            raise
        return opened

    def check(
        self,
        opened: Descriptor,
        key: str | None = None,
        rows: NDArray[np.int64] | None = None,
        ends: NDArray[np.int64] | None = None,
    ) -> None:
        """Raise if the open file is no longer what it was: its bytes may mean something else.

        Parameters
        ----------
        opened : Descriptor
        key : str, optional
        rows, ends : ndarray of int64, shape (n,), optional
            The rows about to be read and where each ends, for the message.

        Raises
        ------
        oocdata.errors.TruncatedFileError, oocdata.errors.SourceError
        """
        status = os.fstat(opened.number)
        if status.st_size < self.nbytes and rows is not None and ends is not None:
            beyond = ends > status.st_size
            rows = rows[beyond] if beyond.any() else rows  # the others are still there
        self.compare(status, key, rows)

    def compare(
        self, status: os.stat_result, key: str | None = None, rows: Iterable[int] | None = None
    ) -> None:
        """Raise if this is not the status that the file had.

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
        if status.st_size < self.nbytes:
            raise TruncatedFileError(
                f"the file must hold {self.nbytes} bytes, as when it was opened; it ends at "
                f"{status.st_size}. It was cut short after it was opened.",
                path=self.path,
                key=key,
                rows=rows,
            )
        if self.modified not in (None, status.st_mtime_ns):
            raise SourceError(
                "the file must be as it was when it was opened; it has changed. Open it again.",
                path=self.path,
                key=key,
                rows=rows,
            )
