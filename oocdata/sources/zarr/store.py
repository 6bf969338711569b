"""Where the files of a Zarr hierarchy lie: a folder, a ZIP archive, a URL, a store of zarr-python.

All four are small descriptions with one interface: read a metadata file, ask whether a stored
object is there, and say how TensorStore or zarr-python gets at the same place.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from oocdata.errors import (
    MissingFileError,
    SourceError,
    UnknownFormatError,
)
from oocdata.sources.handles import handle
from oocdata.sources.zarr.tensorstore import LIBRARY_ERRORS, first_line, tensorstore

__all__ = ["Address", "Archive", "Folder", "Store", "Stored", "join", "store_of"]


class Stored(NamedTuple):
    """What is known of one stored object.

    Attributes
    ----------
    nbytes : int
    version : int
        Tells versions apart.
    modified : int
        When it was written, in nanoseconds since the epoch; 0 where that is not known.
    """

    nbytes: int
    version: int
    modified: int = 0


class Store(Protocol):
    """The files of a Zarr hierarchy, by name. Frozen, hashable, picklable."""

    @property
    def path(self) -> str:
        """For messages."""
        ...

    @property
    def listable(self) -> bool:
        """Whether asking for thousands of objects is cheap."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        ...

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        ...

    def status(self, name: str) -> Stored | None:
        """Return what is known of an object; None where there is none."""
        ...

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        ...

    def zarr_store(self) -> Any:
        """Return a zarr-python store, open for reading."""
        ...


def join(*parts: str) -> str:
    """Return the name of an object below a key.

    Examples
    --------
    >>> join("", "zarr.json"), join("a/b", "c", "0")
    ('zarr.json', 'a/b/c/0')
    """
    return "/".join(part for part in parts if part)


_SECONDS_TO_ANSWER = 20
"""TensorStore tries again, and again, for minutes."""


def _version(status: os.stat_result) -> int:
    """Return a number that tells one version of a file from the next."""
    # The size and the inode as well: the clock of a file system is coarse, and a writer may rename
    # a new file into place.
    return status.st_mtime_ns ^ status.st_size ^ (status.st_ino << 20)


@dataclass(frozen=True, slots=True)
class Folder:
    """A Zarr hierarchy in a folder."""

    path: str

    listable = True

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        try:
            with open(os.path.join(self.path, name), "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                return os.pread(
                    file.fileno(), nbytes, max(0, size - nbytes) if start is None else start
                )
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def status(self, name: str) -> Stored | None:
        """Return what is known of an object; None where there is none."""
        try:
            found = os.stat(f"{self.path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stored(found.st_size, _version(found), found.st_mtime_ns)

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        return {"driver": "file", "path": os.path.join(self.path, key, "")}

    def zarr_store(self) -> Any:
        """Return a zarr-python store, open for reading."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=True)


@dataclass(frozen=True, slots=True)
class Archive:
    """A Zarr hierarchy in a ZIP archive; `version` tells one version of the file from the next."""

    path: str
    version: int

    listable = True

    @classmethod
    def of(cls, path: str) -> Archive:
        """Return the archive as it is now."""
        archive = cls(path, _version(os.stat(path)))
        archive.members()
        return archive

    def written(self) -> int:
        """Return the version of the file that is there now."""
        return _version(os.stat(self.path))

    def members(self) -> zipfile.ZipFile:
        """Return this process's open archive."""
        return handle(("zip", self), self._open)

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except FileNotFoundError as error:
            raise MissingFileError(
                "the archive must exist when it is read; it is gone.", path=self.path
            ) from error
        except zipfile.BadZipFile as error:
            raise UnknownFormatError(
                f"a zipped Zarr must be a ZIP archive; {error}. Was it cut short?", path=self.path
            ) from error

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        try:
            return self.members().read(name)
        except KeyError:
            return None
        except zipfile.BadZipFile as error:
            raise UnknownFormatError(
                f"the member {name!r} must be readable; {error}.", path=self.path
            ) from error

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        whole = self.read(name)
        if whole is None:
            return None
        first = max(0, len(whole) - nbytes) if start is None else start
        return whole[first : first + nbytes]

    def status(self, name: str) -> Stored | None:
        """Return what is known of an object; None where there is none."""
        try:
            return Stored(self.members().getinfo(name).file_size, self.version)
        except KeyError:
            return None

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        base = {"driver": "file", "path": self.path}
        return {"driver": "zip", "base": base, "path": f"{key}/" if key else ""}

    def zarr_store(self) -> Any:
        """Return a zarr-python store, open for reading."""
        from zarr.storage import ZipStore

        return ZipStore(self.path, mode="r", read_only=True)


@dataclass(frozen=True, slots=True)
class Address:
    """A Zarr hierarchy at a URL that TensorStore reads: ``http(s)://``, ``s3://``, ``gs://``."""

    path: str

    listable = False

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        return self._read(name)

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        whole = self._read(name)
        if whole is None:
            return None
        first = max(0, len(whole) - nbytes) if start is None else start
        return whole[first : first + nbytes]

    def status(self, name: str) -> Stored | None:
        """Return what is known of an object; None where there is none."""
        whole = self._read(name)
        return None if whole is None else Stored(len(whole), 0)

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        return f"{self.path}/{key}/" if key else f"{self.path}/"

    def zarr_store(self) -> Any:
        """Refuse: zarr-python needs the user's own store and credentials for this."""
        raise SourceError(
            "TensorStore can't decode this array, and an array at a URL is read by TensorStore. "
            "Open it with zarr.open_array and give that to `open`.",
            path=self.path,
        )

    def _read(self, name: str) -> bytes | None:
        library = tensorstore()
        try:
            folder = handle(
                ("kvstore", self), lambda: library.KvStore.open(self.kvstore("")).result()
            )
            found = folder.read(name).result(timeout=_SECONDS_TO_ANSWER)
        except TimeoutError as error:
            raise SourceError(
                f"the URL must be readable; its server gave no answer within {_SECONDS_TO_ANSWER} "
                "seconds. Is the address right, and the server up?",
                path=self.path,
            ) from error
        except LIBRARY_ERRORS as error:
            raise SourceError(
                f"the URL must be readable; {first_line(error)}. TensorStore reads http://, "
                "https://, s3:// and gs://.",
                path=self.path,
            ) from error
        return None if found.state == "missing" else bytes(found.value)


def store_of(path: str) -> Store:
    """Return the store at a path or URL.

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.UnknownFormatError
    """
    scheme, mark, rest = path.partition("://")
    if mark and scheme == "file":
        from urllib.parse import unquote

        path = unquote("/" + rest.partition("/")[2])
    elif mark:
        if scheme not in ("http", "https", "s3", "gs"):
            raise UnknownFormatError(
                "a URL must start with file://, http://, https://, s3:// or gs://; got "
                f"{scheme}://. For another store, open the array with zarr.open_array and "
                "give that to `open`.",
                path=path,
            )
        return Address(path.rstrip("/"))
    # A worker process may stand in another folder.
    absolute = os.path.abspath(path)
    if os.path.isdir(absolute):
        return Folder(absolute)
    if not os.path.exists(absolute):
        raise MissingFileError("the Zarr folder or archive must exist; it does not.", path=path)
    return Archive.of(absolute)
