"""Place results on a disk: write them beside their final path, flush them, and rename them.

Until it is complete, a result is in a folder ``<name>.oocdata-partial``, which nothing opens by
mistake. The folder has a lock, so that no two processes write the same result, and a note that
explains it. A process that is killed leaves only this folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from oocdata.engines.atomic import sync_file
from oocdata.errors import ArgumentError, MissingFileError
from oocdata.writers.codec import Format
from oocdata.writers.disk import move, sync_folders
from oocdata.writers.existing import arrays_in, check_group, holds_other_data
from oocdata.writers.lock import PARTIAL, empty_folder, remove_folder
from oocdata.writers.storage import Storage, open_storage
from oocdata.writers.target import Target

__all__ = ["Placement"]

_SUFFIX: dict[Format, str] = {"hdf5": "h5"}


@dataclass(frozen=True, slots=True)
class Placement:
    """The final path of a result on a disk, and the folder in which it is made."""

    on_disk: ClassVar[Literal[True]] = True

    path: str  #: absolute; the final path
    key: str | None  #: of the array in the file
    format: Format
    overwrite: bool  #: whether an existing array of that name may be replaced

    @classmethod
    def of(cls, path: str, key: str | None, target: Format, overwrite: bool) -> Placement:
        """Return a placement; raise if its folder is missing or an existing array must stay."""
        full = os.path.abspath(path.rstrip("/"))
        if os.path.islink(full):  # keep the link, and write the file that it points to
            full = os.path.realpath(full)
        placed = cls(full, key, target, overwrite)
        parent = os.path.dirname(placed.path)
        if not os.path.isdir(parent):
            raise MissingFileError(
                f"the output's folder must exist; '{parent}' does not.", path=path
            )
        placed.check()
        return placed

    @property
    def folder(self) -> str:
        """The folder in which the result is made."""
        return self.path + PARTIAL

    @property
    def result(self) -> str:
        """The path of the result while it is made."""
        return os.path.join(self.folder, f"result.{_SUFFIX.get(self.format, self.format)}")

    def storage(self, target: Target, *, resume: bool = False) -> Storage:
        """Return the array under construction; see `open_storage`."""
        return open_storage(target, self.result, resume=resume)

    def stored_bytes(self) -> int:
        """Return the number of bytes written so far."""
        if os.path.isfile(self.result):
            return os.path.getsize(self.result)
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(self.result)
            for name in names
        )

    @property
    def inode(self) -> int:
        """The inode of the new array (a file, or a folder in a group) while it is made, or 0."""
        made = os.path.join(self.result, self.key or "") if self._in_group else self.result
        return os.stat(made).st_ino if os.path.exists(made) else 0

    @property
    def _in_group(self) -> bool:
        return self.format == "zarr" and self.key is not None

    def check(self) -> None:
        """Raise if the final path holds something that may not be replaced."""
        if not os.path.lexists(self.path):
            return
        if not (os.path.isfile(self.path) or os.path.isdir(self.path)):
            raise ArgumentError(
                f"an existing output must be a file or a folder; '{self.path}' is neither. Choose "
                "another name."
            )
        found, existing = arrays_in(self.path, self.format), f"'{self.path}'"
        is_zarr, key = self.format == "zarr", (self.key or "").strip("/")
        if found is None or self.format == "npy" or os.path.isdir(self.path) != is_zarr:
            # A file of another format, or a .npy, can only be replaced as a whole.
            if os.path.isdir(self.path):
                raise ArgumentError(
                    f"'{self.path}' is a folder that is no Zarr array or group, which is never "
                    "replaced. Choose another name, or delete it yourself."
                )
        elif not is_zarr:
            if holds_other_data(self.path, key):
                raise ArgumentError(
                    f"an HDF5 file is written as a whole, with one array; '{self.path}' holds more "
                    f"than {self.key!r}, which would be lost. Choose another name."
                )
        elif not key:
            if found != [""]:
                raise ArgumentError(
                    f"'{self.path}' is a group, which is never replaced as a whole. Give a key, or "
                    "delete it yourself."
                )
        elif check_group(self.path, key):
            existing = f"{self.key!r} in '{self.path}'"
        else:
            return
        if not self.overwrite:
            raise ArgumentError(
                f"the output must not exist yet; {existing} does. Choose another name, or allow it "
                "to be replaced: overwrite=True."
            )

    def place(self) -> None:
        """Flush the result to the disk, and rename it to its final path in one step.

        In an existing Zarr group, only the part of the hierarchy that it lacks is moved. Raise if
        something that may not be replaced has appeared there meanwhile.
        """
        self.check()
        source, target = self.result, self.path
        for part in (self.key or "").split("/") if self._in_group else ():
            if not os.path.isdir(target):
                break
            target, source = os.path.join(target, part), os.path.join(source, part)
        (sync_folders if self.format == "zarr" else sync_file)(self.result)
        move(source, target)
        sync_file(os.path.dirname(target))

    def begin(self) -> None:
        """Delete the files of an earlier process, and prepare for a new result.

        The lock must be held. The result gets the permissions of the file that it replaces.
        """
        empty_folder(self.folder)
        if os.path.exists(self.path):
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
            if os.path.isdir(self.path):
                os.mkdir(self.result, stat.S_IRWXU)
            else:
                flags = os.O_CREAT | os.O_WRONLY
                os.close(os.open(self.result, flags, stat.S_IRUSR | stat.S_IWUSR))
            os.chmod(self.result, mode | stat.S_IRUSR | stat.S_IWUSR)  # we must be able to write

    def remove(self) -> None:
        """Delete the folder in which the result was made."""
        with suppress(OSError):
            empty_folder(self.folder)
        remove_folder(self.folder)
