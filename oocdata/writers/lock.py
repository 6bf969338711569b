"""One process at a time makes a result, in a folder of oocdata's own.

The folder is made under another name, with a note in it that says what it is, and renamed: so
whatever has its name without that note is somebody else's, and is neither used nor deleted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from types import TracebackType

from oocdata.errors import ArgumentError, SourceError
from oocdata.writers.placement import LOCKED, Placement

__all__ = ["Lock"]

_MARK = "Made by oocdata: "
_NOTE = (
    _MARK
    + """what it had written of {name} when it was stopped; {name} itself is not touched.
{hint}Nothing else needs this folder: it may be deleted.
"""
)


class Lock:
    """One process at a time makes a result; the lock goes with the process, however it ends.

    Parameters
    ----------
    placement : Placement
    hint : str
        For the note: how to go on.

    Raises
    ------
    oocdata.errors.ArgumentError
        If something else has the name of the folder.
    oocdata.errors.SourceError
        If another process has it.
    """

    def __init__(self, placement: Placement, hint: str = "") -> None:
        self._placement = placement
        self._number = -1
        self._note = _NOTE.format(name=os.path.basename(placement.path), hint=hint).encode()
        try:
            # Who had it before may delete the folder between two of these steps.
            while not self.held():
                self.release()
                if os.path.lexists(placement.folder):
                    with suppress(FileNotFoundError):
                        self._take()
                else:
                    self._make()
        except BlockingIOError as error:
            self.release()
            raise SourceError(
                "only one process may write a file; another one is at it. Wait, or choose "
                "another name.",
                path=placement.path,
            ) from error
        except OSError as error:
            self.release()
            if isinstance(error, SourceError):
                raise
            raise SourceError(
                f"the folder must be writable; {error}.", path=placement.path
            ) from error

    def _make(self) -> None:
        """Make the folder, locked and with its note before it has its name."""
        parent, name = os.path.split(self._placement.folder)
        made = tempfile.mkdtemp(prefix=f".{name}-", dir=parent)
        path = os.path.join(made, LOCKED)
        try:
            self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._number, self._note, 0)
            os.rename(made, self._placement.folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise  # else another process was faster
        finally:
            if os.path.exists(path):
                os.unlink(path)
                os.rmdir(made)

    def _take(self) -> None:
        """Lock the folder that another process left, if it is one of oocdata's."""
        folder = self._placement.folder
        there = os.lstat(folder)
        if not stat.S_ISDIR(there.st_mode):
            raise _foreign(folder, "it is a link" if stat.S_ISLNK(there.st_mode) else "it is none")
        if there.st_uid != os.geteuid():
            raise _foreign(folder, "it is another user's")
        try:
            flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            self._number = os.open(os.path.join(folder, LOCKED), flags)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.lexists(folder):
                raise
            raise _foreign(folder, "it holds no note of oocdata's") from error
        if os.pread(self._number, len(_MARK), 0) != _MARK.encode():
            self.release()
            raise _foreign(folder, "it holds no note of oocdata's")
        fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(self._number, self._note, 0)  # over the same mark, whenever this is stopped
        os.ftruncate(self._number, len(self._note))

    def held(self) -> bool:
        """Return whether what is locked is the file that is there."""
        try:
            there = os.stat(os.path.join(self._placement.folder, LOCKED))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return self._number >= 0 and os.path.samestat(os.fstat(self._number), there)

    def check(self) -> None:
        """Raise if the folder was deleted meanwhile, and with it a part of what was made.

        Raises
        ------
        oocdata.errors.SourceError
        """
        if not self.held():
            raise SourceError(
                f"the folder in which a result is made must stay until it is done; "
                f"'{self._placement.folder}' was deleted. Do it again.",
                path=self._placement.path,
            )

    def release(self) -> None:
        """Let others write."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _foreign(folder: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"the folder '{folder}', in which the result is made, must be one that oocdata made; "
        f"{why}. It was left as it is: rename or delete it, or choose another name."
    )
