"""One process at a time makes a result, in a folder of oocdata's own.

A note in it says what it is. Whatever has its name without that note is somebody else's, and is
neither used nor deleted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from typing import Protocol

from oocdata.errors import ArgumentError, SourceError

__all__ = ["LOCKED", "PARTIAL", "Lock", "empty", "remove"]

PARTIAL = ".oocdata-partial"
"""What follows the name of the result in the name of the folder where it is made."""

LOCKED = "README.txt"
"""The file in it that is locked, and tells what it is."""

_OURS = ("result.", "journal", "scratch")
"""How the names of all that is written in it begin, but for that file."""

_MARK = "Made by oocdata: "
_NOTE = (
    _MARK
    + """what it had written of {name} when it was stopped; {name} itself is not touched.
{hint}Nothing else needs this folder: it may be deleted.
"""
)


class _Place(Protocol):
    """Where a result is made, and the name that it is to have."""

    @property
    def path(self) -> str: ...

    @property
    def folder(self) -> str: ...


class Lock:
    """One process at a time makes a result; the lock goes with the process, however it ends.

    `hint` says in the note how to go on. An `ArgumentError` if something else has the name of the
    folder, a `SourceError` if another process has it.
    """

    def __init__(self, placement: _Place, hint: str = "") -> None:
        self._placement = placement
        self._number = -1
        try:
            self._take(_NOTE.format(name=os.path.basename(placement.path), hint=hint).encode())
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError | FileNotFoundError):
                raise SourceError(
                    "only one process may write a file; another one is at it. Wait, or choose "
                    "another name.",
                    path=placement.path,
                ) from error
            if isinstance(error, OSError):
                raise SourceError(
                    f"the folder must be writable; {error}.", path=placement.path
                ) from error
            raise

    def _take(self, note: bytes) -> None:
        """Make the folder, or take the one that another process left; lock its note."""
        folder = self._placement.folder
        try:
            os.mkdir(folder)
        except FileExistsError:
            there = os.lstat(folder)
            if not stat.S_ISDIR(there.st_mode):
                why = "it is a link" if stat.S_ISLNK(there.st_mode) else "it is none"
                raise _foreign(folder, why) from None
            if there.st_uid != os.geteuid():
                raise _foreign(folder, "it is another user's") from None
            # Without anything in it: a process that made it was stopped at once.
            if os.listdir(folder) and not os.path.lexists(os.path.join(folder, LOCKED)):
                raise _foreign(folder, "it holds no note of oocdata's") from None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._number = os.open(os.path.join(folder, LOCKED), flags, 0o666)
        if os.pread(self._number, len(_MARK), 0) not in (_MARK.encode(), b""):
            raise _foreign(folder, "it holds no note of oocdata's")
        fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not self.held():
            raise BlockingIOError("the process before was just done with the folder")
        os.pwrite(self._number, note, 0)  # over the same mark, whenever this is stopped
        os.ftruncate(self._number, len(note))

    def held(self) -> bool:
        """Return whether what is locked is the file that is there."""
        try:
            there = os.stat(os.path.join(self._placement.folder, LOCKED))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return self._number >= 0 and os.path.samestat(os.fstat(self._number), there)

    def check(self) -> None:
        """Raise if the folder was deleted meanwhile, and with it a part of what was made."""
        if not self.held():
            raise SourceError(
                f"the folder in which a result is made must stay until it is done; "
                f"'{self._placement.folder}' was deleted. Do it again.",
                path=self._placement.path,
            )

    def close(self) -> None:
        """Let others write."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def empty(folder: str) -> None:
    """Delete what was written in a folder that is locked; its note stays."""
    for entry in list(os.scandir(folder)):
        if not entry.name.startswith(_OURS):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def remove(folder: str) -> None:
    """Delete an empty folder; what is locked last, for it keeps others out.

    What somebody else has put there stays, with the note that tells what the folder is.
    """
    with suppress(OSError):
        if os.listdir(folder) == [LOCKED]:
            os.unlink(os.path.join(folder, LOCKED))
            os.rmdir(folder)


def _foreign(folder: str, why: str) -> ArgumentError:
    return ArgumentError(
        f"the folder '{folder}', in which the result is made, must be one that oocdata made; "
        f"{why}. It was left as it is: rename or delete it, or choose another name."
    )
