"""Lock the folder in which a result is made, flush files to the disk, and rename them into place.

The lock is on a note in the folder that says that oocdata made it. A folder without the note is
neither used nor deleted, because it must be somebody else's.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from oocdata.engines.atomic import EXCHANGE, atomic_file, rename_flagged, sync_file, write_errors
from oocdata.errors import ArgumentError, SourceError

if TYPE_CHECKING:
    from oocdata.writers.placement import Placement
    from oocdata.writers.upload import Upload


def sync_folders(path: str) -> None:
    """Flush all folders below a folder to the disk, and the metadata files of Zarr in them."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith(("zarr.json", ".z")):
                sync_file(os.path.join(folder, name))
        sync_file(folder)


def write_json(path: str, node: dict[str, Any]) -> None:
    """Write a small JSON file atomically, and flush it to the disk."""
    with write_errors(path), atomic_file(path, f"{path}.new") as file:
        file.write(json.dumps(node, allow_nan=False).encode())


def move(source: str, target: str) -> None:
    """Rename a file or folder, replacing a file, or exchanging it with a folder of that name."""
    if not os.path.isdir(target) or os.path.islink(target):
        os.replace(source, target)
    elif not rename_flagged(source, target, EXCHANGE):
        raise SourceError(
            "a folder can be replaced only where the system exchanges two folders in one step, "
            "which NFS and macOS do not. Delete the old array, or choose another name.",
            path=target,
        )


PARTIAL = ".oocdata-partial"
"""Suffix of the folder in which a result is made, after the name of the result."""

NOTE_NAME = "README.txt"
"""Name of the note in the folder, which is the file that is locked."""

_OUR_PREFIXES = ("result.", "journal")
"""Prefixes of the names of all other files that oocdata writes in the folder."""

_FIRST_WORDS = "Made by oocdata: "
_NOTE = (
    _FIRST_WORDS
    + """an unfinished version of {name}; {name} itself is not touched.
To continue, start the same program again.
Nothing else needs this folder: it may be deleted.
"""
)


class Lock:
    """An exclusive lock on the folder of a result, which ends with the process.

    Raises `ArgumentError` if the folder was not made by oocdata. If another process holds the lock,
    `waits` until it is free, or raises `SourceError`.
    """

    def __init__(self, placement: Placement | Upload, *, waits: bool = False) -> None:
        self._placement = placement
        self._descriptor = -1
        note = os.fsencode(_NOTE.format(name=os.path.basename(placement.path)))
        while self._descriptor < 0:
            try:
                self._acquire(note, waits)
            except BaseException as error:
                self.close()
                if isinstance(error, BlockingIOError | FileNotFoundError):
                    if waits:
                        continue
                    raise SourceError(
                        "only one process may write a file; another one is writing it. Wait, or "
                        "choose another name.",
                        path=placement.path,
                    ) from error
                if isinstance(error, OSError):
                    raise SourceError(
                        f"the folder must be writable; {error}.", path=placement.path
                    ) from error
                raise

    def _acquire(self, note: bytes, waits: bool) -> None:
        """Make the folder, or reuse the one that another process left, and lock its note."""
        folder = self._placement.folder
        if waits:  # whoever held the lock may have deleted all
            os.makedirs(os.path.dirname(folder), exist_ok=True)
        try:
            os.mkdir(folder, 0o700)  # the result may be as private as the file that it replaces
        except FileExistsError:
            status = os.lstat(folder)
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            # If the folder is empty, a process was stopped right after it had made it.
            if not is_own or (os.listdir(folder) and NOTE_NAME not in os.listdir(folder)):
                raise _foreign(folder) from None
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(os.path.join(folder, NOTE_NAME), flags, 0o666)
        begin = os.pread(self._descriptor, len(_FIRST_WORDS), 0)
        if begin not in (_FIRST_WORDS.encode(), b""):
            raise _foreign(folder)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        if not self.held():
            raise BlockingIOError("the process before was just done with the folder")
        # Every note begins with the same words, so this may be interrupted anywhere.
        os.pwrite(self._descriptor, note, 0)
        os.ftruncate(self._descriptor, len(note))

    def held(self) -> bool:
        """Return whether the locked file is still the note in the folder."""
        try:
            status = os.stat(os.path.join(self._placement.folder, NOTE_NAME))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return self._descriptor >= 0 and os.path.samestat(os.fstat(self._descriptor), status)

    def check(self) -> None:
        """Raise if the folder was deleted meanwhile, and with it a part of the result."""
        if not self.held():
            raise SourceError(
                f"the folder in which a result is made must stay until it is done; "
                f"'{self._placement.folder}' was deleted. Do it again.",
                path=self._placement.path,
            )

    def close(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def empty_folder(folder: str) -> None:
    """Delete all files of oocdata in a locked folder, except the note."""
    for entry in list(os.scandir(folder)):
        if not entry.name.startswith(_OUR_PREFIXES):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def remove_folder(folder: str) -> None:
    """Delete a folder that holds only its note.

    If it holds files of somebody else, these stay, and so does the note that explains the folder.
    """
    with suppress(OSError):
        if os.listdir(folder) == [NOTE_NAME]:
            os.unlink(os.path.join(folder, NOTE_NAME))
            os.rmdir(folder)


def _foreign(folder: str) -> ArgumentError:
    """Return the error for a folder that oocdata did not make."""
    return ArgumentError(
        f"the folder '{folder}', in which the result is made, must be one that oocdata made for "
        "you; it is not. It was left as it is: rename or delete it, or choose another name."
    )
