"""How a result comes to its name: written beside it, made safe on the disk, then renamed.

Until then it lies in a folder of its own, ``<name>.oocdata-partial``, that nothing opens by
mistake: with a lock, so that no two processes write the same, and a note that says what it is. A
process that is killed leaves that folder and nothing else.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from dataclasses import dataclass
from types import TracebackType

from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.sources.opening import format_of, list_datasets
from oocdata.writers.codec import Format

__all__ = ["PARTIAL", "Lock", "Placement", "sync_file", "sync_folders"]

PARTIAL = ".oocdata-partial"
"""What follows the name of the result in the name of the folder where it is made."""

_NOTE = """What oocdata had written of {name} when it was stopped; {name} itself is not touched.
{hint}Nothing else needs this folder: it may be deleted.
"""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a result is made, and where it belongs.

    Attributes
    ----------
    path : str
        Absolute; the final name.
    key : str or None
        Of the array in the file.
    format : {"npy", "hdf5", "zarr"}
    overwrite : bool
        An array of that name may be replaced.
    """

    path: str
    key: str | None
    format: Format
    overwrite: bool

    @classmethod
    def of(cls, path: str, key: str | None, target: Format, overwrite: bool) -> Placement:
        """Check that something may be put there.

        Raises
        ------
        oocdata.errors.ArgumentError
            If there is something that may not be replaced.
        oocdata.errors.MissingFileError
            If there is no such folder.
        """
        placed = cls(os.path.abspath(path.rstrip("/")), key, target, overwrite)
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
        return os.path.join(self.folder, f"result{os.path.splitext(self.path)[1]}")

    def check(self) -> None:
        """Raise if something lies there that may not be replaced; see `of`."""
        if not os.path.lexists(self.path):
            return
        found = self._arrays()
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
        others = [key for key in found if key != mine]
        if self.format == "zarr" and (not mine or "" in found):
            if others and not mine:
                raise ArgumentError(
                    f"'{self.path}' is a group with the arrays {_named(others)}, which is never "
                    "replaced as a whole. Give a key, or delete it yourself."
                )
            self._refuse(f"'{self.path}'")
        for other in others:
            if mine and (other.startswith(f"{mine}/") or mine.startswith(f"{other}/")):
                raise ArgumentError(
                    f"an array must not lie inside another one, or have the name of a group; "
                    f"'{self.path}' holds {other!r}, and the key is {self.key!r}."
                )
        if mine in found:
            self._refuse(f"{self.key!r} in '{self.path}'")

    def _refuse(self, what: str) -> None:
        if not self.overwrite:
            raise ArgumentError(
                f"what is written must not exist yet; {what} does. Choose another name, or say "
                "that it may be replaced: overwrite=True, or --force on the command line."
            )

    def _arrays(self) -> list[str] | None:
        """Return the keys of the arrays that lie there; None where that is no known format."""
        try:
            if format_of(self.path) != self.format:
                return None
            return [(key or "").strip("/") for key in list_datasets(self.path)]
        except (SourceError, ValueError):
            return None

    def keeps_others(self) -> bool:
        """Return whether the file holds other arrays, which stay: it is then copied first."""
        found = self._arrays() if self.format == "hdf5" else None
        return bool(set(found or ()) - {(self.key or "").strip("/")})

    def place(self) -> None:
        """Give the result its name, in one step, once it is safe on the disk.

        Raises
        ------
        oocdata.errors.ArgumentError
            If something has appeared there meanwhile that may not be replaced.
        """
        self.check()
        source, target = self.result, self.path
        if self.format == "zarr":
            sync_folders(source)
            parts = (self.key or "").split("/") if self.key else []
            # Into a group that is there, down to what it lacks.
            while parts and os.path.isdir(target) and self._arrays():
                target, source = os.path.join(target, parts[0]), os.path.join(source, parts[0])
                parts = parts[1:]
                if not os.path.isdir(target):
                    break
        else:
            sync_file(source)
        _move(source, target)
        sync_file(os.path.dirname(target))

    def remove(self) -> None:
        """Delete the folder where it was made."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Lock:
    """One process at a time makes a result; the lock goes with the process, however it ends.

    Parameters
    ----------
    placement : Placement
    hint : str
        For the note: how to go on.

    Raises
    ------
    oocdata.errors.SourceError
        If another process has it.
    """

    def __init__(self, placement: Placement, hint: str = "") -> None:
        self._placement = placement
        try:
            os.makedirs(placement.folder, exist_ok=True)
            self._number = os.open(
                os.path.join(placement.folder, "README.txt"), os.O_RDWR | os.O_CREAT, 0o666
            )
        except OSError as error:
            raise SourceError(
                f"the folder must be writable; {error}.", path=placement.path
            ) from error
        try:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise SourceError(
                "only one process may write a file; another one is at it. Wait, or choose "
                "another name.",
                path=placement.path,
            ) from error
        note = _NOTE.format(name=os.path.basename(placement.path), hint=hint)
        os.ftruncate(self._number, 0)
        os.pwrite(self._number, note.encode(), 0)

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


def _named(keys: list[str]) -> str:
    return ", ".join(map(repr, keys[:5])) + (", …" if len(keys) > 5 else "")


def sync_file(path: str) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_folders(path: str) -> None:
    """Make the names of all files below a folder safe on the disk, and small files' content."""
    for folder, _, names in os.walk(path):
        for name in names:
            if name.startswith(("zarr.json", ".z")):
                sync_file(os.path.join(folder, name))
        sync_file(folder)


_RENAME_EXCHANGE, _HERE = 2, -100
"""Linux's ``renameat2``: both names at once; relative to the current folder."""


def _move(source: str, target: str) -> None:
    if not os.path.isdir(target) or os.path.islink(target):
        os.replace(source, target)
        return
    # A folder can't be replaced by a rename; where the system can, the two change places.
    if sys.platform == "linux":
        import ctypes

        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        names = os.fsencode(source), os.fsencode(target)
        if rename and rename(_HERE, names[0], _HERE, names[1], _RENAME_EXCHANGE) == 0:
            return
    os.rename(target, f"{source}.replaced")
    os.rename(source, target)
