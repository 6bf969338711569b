"""How a result comes to its name: written beside it, made safe on the disk, then renamed.

Until then it lies in a folder of its own, ``<name>.oocdata-partial``, that nothing opens by
mistake: with a lock, so that no two processes write the same, and a note that says what it is. A
process that is killed leaves that folder and nothing else.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from oocdata.engines.whole import sync_file
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.writers.codec import Format
from oocdata.writers.disk import move, replaced, sync_folders, writable
from oocdata.writers.lock import PARTIAL, empty, remove
from oocdata.writers.present import arrays_in, check_file, check_group, holds_more, stamp_of
from oocdata.writers.storage import Storage, open_storage
from oocdata.writers.target import Target

__all__ = ["COMPLETE", "Placement"]

COMPLETE = ".oocdata-complete"
"""What follows the name of the result in the name of a complete one that can't have it."""


_SUFFIX: dict[Format, str] = {"hdf5": "h5"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a result is made on a disk, and where it belongs."""

    on_disk: ClassVar[Literal[True]] = True

    path: str  #: absolute; the final name
    key: str | None  #: of the array in the file
    format: Format
    overwrite: bool  #: an array of that name may be replaced
    before: str = ""  #: tells the HDF5 file that was there from any later one; empty without one

    @classmethod
    def of(cls, path: str, key: str | None, target: Format, overwrite: bool) -> Placement:
        """Check that something may be put there: there is such a folder, and nothing that stays."""
        full = os.path.abspath(path.rstrip("/"))
        if os.path.islink(full):  # the link stays, and what it leads to is written
            full = os.path.realpath(full)
        before = stamp_of(full) if target == "hdf5" else ""
        placed = cls(full, key, target, overwrite, before)
        parent = os.path.dirname(placed.path)
        if not os.path.isdir(parent):
            raise MissingFileError(
                f"the folder of what is written must exist; '{parent}' does not.", path=path
            )
        placed.check()
        return placed

    @property
    def folder(self) -> str:
        """Where the result is made."""
        return self.path + PARTIAL

    @property
    def result(self) -> str:
        """Its path while it is made."""
        return os.path.join(self.folder, f"result.{_SUFFIX.get(self.format, self.format)}")

    @property
    def reopened(self) -> str:
        """Where the complete result is read to be verified."""
        return self.result

    @property
    def left(self) -> str:
        """Where lies what was done, if it is stopped."""
        return f"in '{self.folder}'"

    def storage(self, target: Target, *, resume: bool = False) -> Storage:
        """Return the array under construction; see `open_storage`."""
        return open_storage(target, self.result, resume=resume)

    def stored_bytes(self) -> int:
        """Return the bytes of what was written, while it is made."""
        if os.path.isfile(self.result):
            return os.path.getsize(self.result)
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(self.result)
            for name in names
        )

    @property
    def made(self) -> str:
        """What is made of it: the array in a Zarr group, or the file."""
        return os.path.join(self.result, self.key or "") if self._in_group else self.result

    @property
    def inode(self) -> int:
        """The number by which the disk knows what is made; 0 if there is none."""
        try:
            return os.stat(self.made).st_ino
        except OSError:
            return 0

    @property
    def _in_group(self) -> bool:
        return self.format == "zarr" and self.key is not None

    def check(self) -> None:
        """Raise if something lies there that may not be replaced; see `of`."""
        if not os.path.lexists(self.path):
            return
        if not (os.path.isfile(self.path) or os.path.isdir(self.path)):
            raise ArgumentError(
                "what is replaced must be a file or a folder, and what is added to as well; "
                f"'{self.path}' is neither. Choose another name."
            )
        found = arrays_in(self.path, self.format)
        if (
            found is None
            or self.format == "npy"
            or os.path.isdir(self.path) != (self.format == "zarr")
        ):
            # No file of this format: it is replaced as a whole, unless it is a folder.
            if os.path.isdir(self.path):
                raise ArgumentError(
                    f"'{self.path}' is a folder that is no Zarr array or group, which is never "
                    "replaced. Choose another name, or delete it yourself."
                )
            self._refuse(f"'{self.path}'")
            return
        mine = (self.key or "").strip("/")
        if self.format == "zarr" and not mine:
            if found != [""]:
                holding = f" with the arrays {_named(found)}" if found else ""
                raise ArgumentError(
                    f"'{self.path}' is a group{holding}, which is never replaced as a whole. Give "
                    "a key, or delete it yourself."
                )
            self._refuse(f"'{self.path}'")
            return
        if (check_group if self.format == "zarr" else check_file)(self.path, mine):
            self._refuse(f"{self.key!r} in '{self.path}'")

    def _refuse(self, what: str) -> None:
        if not self.overwrite:
            raise ArgumentError(
                f"what is written must not exist yet; {what} does. Choose another name, or say "
                "that it may be replaced: overwrite=True."
            )

    def _keeps_others(self) -> bool:
        """Return whether the file holds something else, which stays: it is then copied first."""
        if self.format != "hdf5" or arrays_in(self.path, "hdf5") is None:
            return False
        return holds_more(self.path, self.key or "")

    def _check_unchanged(self) -> None:
        """Raise if an HDF5 file has changed since it was looked at: what came would be lost."""
        if self.format == "hdf5" and stamp_of(self.path) != self.before:
            raise SourceError(
                "the file must not change while an array is added to it or it is replaced; it "
                "has. It was left as it is: do it again.",
                path=self.path,
            )

    def place(self) -> None:
        """Give the result its name, in one step, once it is safe on the disk.

        Raise if something has appeared there meanwhile that may not be replaced, or if the file to
        which an array is added has changed.
        """
        self.check()
        self._check_unchanged()
        source, target = self._ends
        (sync_folders if self.format == "zarr" else sync_file)(self.result)
        move(source, target)
        sync_file(os.path.dirname(target))

    @property
    def _ends(self) -> tuple[str, str]:
        """What is moved, and where to: into a group that is there, down to what it lacks."""
        source, target = self.result, self.path
        for part in (self.key or "").split("/") if self._in_group else ():
            if not os.path.isdir(target):
                break
            target, source = os.path.join(target, part), os.path.join(source, part)
        return source, target

    def keep(self) -> str:
        """Move a complete result that can't have its name beside it, and return where it is.

        Where nothing can be renamed, it stays where it was made.
        """
        kept, number = self.path + COMPLETE, 1
        while os.path.lexists(kept):
            number += 1
            kept = f"{self.path}{COMPLETE}-{number}"
        try:
            os.rename(self.result, kept)
        except OSError:
            return self.result
        return kept

    def begin(self) -> None:
        """Delete what an earlier process left, and make room for a new result.

        The lock must be held. Nobody can read the result who can't read what it replaces; a file
        that it adds to is copied first. An `ArgumentError` if the earlier process had taken away
        what was there, to put another in its place: it is back.
        """
        if self._empty():
            self.check()
        if os.path.exists(self.path):
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
            if os.path.isdir(self.path):
                os.mkdir(self.result, stat.S_IRWXU)
            else:
                flags = os.O_CREAT | os.O_WRONLY
                os.close(os.open(self.result, flags, stat.S_IRUSR | stat.S_IWUSR))
            os.chmod(self.result, mode | stat.S_IRUSR | stat.S_IWUSR)  # it is written to
        if self._keeps_others():
            with writable(self.result):
                shutil.copyfile(self.path, self.result)
        self._check_unchanged()

    def _empty(self) -> bool:
        """Delete what was written in the folder; return whether something was put back."""
        source, target = self._ends
        left = replaced(source)
        back = os.path.lexists(left) and not os.path.lexists(target)
        if back:
            os.rename(left, target)
        empty(self.folder)
        return back

    def remove(self) -> None:
        """Delete the folder where it was made."""
        with suppress(OSError):
            self._empty()
        remove(self.folder)


def _named(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:5])) + (", …" if len(keys) > 5 else "")
