"""Place results on a disk: write them beside their final path, flush them, and rename them.

Until it is complete, a result is in a folder ``<name>.oocdata-partial`` with a lock and a note. A
process that is killed leaves only this folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from oocdata.engines.atomic import sync_file
from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.formats.opening import format_of, tree_of
from oocdata.writers.disk import PARTIAL, empty_folder, move, remove_folder, sync_folders
from oocdata.writers.storage import Storage, open_storage
from oocdata.writers.target import Format, Target

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

    def storage(self, target: Target, *, done: int = 0) -> Storage:
        """Return the array under construction; see `open_storage`."""
        return open_storage(target, self.result, done=done)

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
        """The inode of the new file or folder while it is made, or 0."""
        return os.stat(self.result).st_ino if os.path.exists(self.result) else 0

    def check(self) -> None:
        """Raise if the final path holds something that may not be replaced."""
        if not os.path.lexists(self.path):
            return
        if not (os.path.isfile(self.path) or os.path.isdir(self.path)):
            raise ArgumentError(
                f"an existing output must be a file or a folder; '{self.path}' is neither. Choose "
                "another name."
            )
        _check_contents(self.path, self.format, self.key)
        if not self.overwrite:
            raise ArgumentError(
                f"the output must not exist yet; '{self.path}' does. Choose another name, or allow "
                "it to be replaced: overwrite=True."
            )

    def place(self) -> None:
        """Flush the result to the disk, and rename it to its final path in one step.

        The result gets the permissions of the file that it replaces. Raise if something that may
        not be replaced has appeared there meanwhile.
        """
        self.check()
        if os.path.exists(self.path):
            os.chmod(self.result, stat.S_IMODE(os.stat(self.path).st_mode) | stat.S_IWUSR)
        (sync_folders if self.format == "zarr" else sync_file)(self.result)
        move(self.result, self.path)
        sync_file(os.path.dirname(self.path))

    def begin(self) -> None:
        """Delete the files of an earlier process; the lock must be held."""
        empty_folder(self.folder)

    def remove(self) -> None:
        """Delete the folder in which the result was made."""
        with suppress(OSError):
            empty_folder(self.folder)
        remove_folder(self.folder)


def _check_contents(path: str, kind: Format, key: str | None) -> None:
    """Raise if more than one array of this name would be lost.

    A file of another format is replaced as a whole, by a file. Raises `SourceError` for an HDF5
    file that can't be read.
    """
    if os.path.isdir(path):
        if kind != "zarr" or not _is_only_array(path, key or ""):
            array = f"a Zarr group with nothing but {key!r}" if key else "a Zarr array"
            raise ArgumentError(
                f"a folder is replaced only by Zarr, and only if it is {array}; '{path}' is not. "
                "Choose another name, or delete it yourself."
            )
    elif kind == "zarr":
        raise ArgumentError(
            f"a file is not replaced by a folder, which Zarr writes; '{path}' is a file. Choose "
            "another name, or delete it yourself."
        )
    elif kind == "hdf5" and _is_hdf5(path) and _holds_other_data(path, key or ""):
        raise ArgumentError(
            f"an HDF5 file is written as a whole, with one array; '{path}' holds more than "
            f"{key!r}, which would be lost. Choose another name."
        )


def _is_hdf5(path: str) -> bool:
    with suppress(SourceError, ValueError):
        return format_of(path) == "hdf5"
    return False


def _holds_only(path: str, key: str) -> bool:
    """Return whether there is one array, in groups without attributes that hold nothing else."""
    parts = key.strip("/").split("/") if key else []
    with tree_of(path) as tree:
        for count, part in enumerate(parts):
            group = "/".join(parts[:count])
            if tree.below(group) != [part] or tree.attributes(group):
                return False
        return tree.array("/".join(parts)) is not None


def _is_only_array(path: str, key: str) -> bool:
    """Return whether a folder is this Zarr array, or groups around it; see `_holds_only`."""
    with suppress(SourceError, ValueError):
        return _holds_only(path, key)
    return False


def _holds_other_data(path: str, key: str) -> bool:
    """Return whether an HDF5 file holds anything besides one dataset and the groups around it."""
    try:
        return not _holds_only(path, key)
    except (SourceError, OSError, RuntimeError) as error:
        raise SourceError(
            "the existing file must be readable, because it may hold other arrays; it is damaged, "
            "or another program is writing it. Choose another name, or delete it yourself.",
            path=path,
        ) from error
