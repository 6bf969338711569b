"""Where the files of a Zarr hierarchy lie: a folder, a ZIP archive, or a URL.

All are small descriptions with one interface: read a metadata file, ask for the version of a stored
object, and say how TensorStore or zarr-python gets at the same place. `held.Held` is the fourth, a
store of zarr-python that the user opened.
"""

from __future__ import annotations

import os
import struct
import zipfile
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from oocdata.engines.files import FileVersion
from oocdata.errors import MissingFileError, SourceError, UnknownFormatError
from oocdata.formats.zarr.tensorstore import INDEX_POOL, LIBRARY_ERRORS, first_line, tensorstore

__all__ = ["Address", "Archive", "Folder", "Status", "Store", "join", "store_of"]


class Status(NamedTuple):
    """What is known of one stored object.

    Attributes
    ----------
    nbytes : int
    version : int
        Another number for another version of the object; never 0.
    """

    nbytes: int
    version: int


class Store(Protocol):
    """The files of a Zarr hierarchy, by name. Picklable."""

    @property
    def path(self) -> str:
        """For messages, and to open it again."""
        ...

    @property
    def listable(self) -> bool:
        """Whether asking for the status of thousands of objects is cheap."""
        ...

    @property
    def versioned(self) -> bool:
        """Whether each object has a version of its own."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        ...

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        ...

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        ...

    def file(self, name: str) -> FileVersion | None:
        """Return the version of the file in which an object lies; None where there is no file."""
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

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class Folder:
    """A Zarr hierarchy in a folder."""

    listable = True
    versioned = True

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                return file.read()
        except _NO_FILE:
            return None

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        try:
            with open(f"{self.path}/{name}", "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                first = max(0, size - nbytes) if start is None else start
                return os.pread(file.fileno(), nbytes, first)
        except _NO_FILE:
            return None

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        try:
            found = os.stat(f"{self.path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        # Numbers hash alike in every process, so a worker can compare.
        size = found.st_size
        version = (found.st_dev, found.st_ino, size, found.st_mtime_ns, found.st_ctime_ns)
        return Status(size, hash(version) or 1)

    def file(self, name: str) -> FileVersion | None:
        """Return the version of the file in which an object lies."""
        return FileVersion.of(f"{self.path}/{name}")

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        return {"driver": "file", "path": os.path.join(self.path, key, "")}

    def zarr_store(self) -> Any:
        """Return a zarr-python store, open for reading."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=True)


class Archive:
    """A Zarr hierarchy in a ZIP archive, whose version is that of all its objects."""

    listable = True
    versioned = False

    def __init__(self, path: str) -> None:
        self.path = path
        self.names = frozenset(self._archive.namelist())

    def __reduce__(self) -> tuple[type[Archive], tuple[str]]:
        return Archive, (self.path,)

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
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
            return self._archive.read(name)
        except KeyError:
            return None
        except zipfile.BadZipFile as error:
            raise UnknownFormatError(
                f"the member {name!r} must be readable; {error}.", path=self.path
            ) from error

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None.

        Only they are read where the member is stored and not deflated, as Zarr's writers do.
        """
        try:
            member = self._archive.getinfo(name)
        except KeyError:
            return None
        first = max(0, member.file_size - nbytes) if start is None else start
        if member.compress_type != zipfile.ZIP_STORED:
            return (self.read(name) or b"")[first : first + nbytes]
        with open(self.path, "rb", buffering=0) as file:
            # The local header repeats the name, and has an extra field of its own length
            # (APPNOTE.TXT, 4.3.7).
            head = os.pread(file.fileno(), 30, member.header_offset)
            if len(head) < 30:
                return b""
            begin = member.header_offset + 30 + sum(struct.unpack("<HH", head[26:]))
            return os.pread(file.fileno(), min(nbytes, member.file_size - first), begin + first)

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        try:
            return Status(self._archive.getinfo(name).file_size, 1)
        except KeyError:
            return None

    def file(self, name: str) -> FileVersion | None:
        """Return the version of the file in which an object lies."""
        return FileVersion.of(self.path)

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        base = {"driver": "file", "path": self.path}
        # Without a cache the directory of the archive would be read with every chunk.
        return {
            "driver": "zip", "base": base, "path": f"{key}/" if key else "",
            "cache_pool": INDEX_POOL,
        }  # fmt: skip

    def zarr_store(self) -> Any:
        """Return a zarr-python store, open for reading."""
        from zarr.storage import ZipStore

        return ZipStore(self.path, mode="r", read_only=True)


class Address:
    """A Zarr hierarchy at a URL that TensorStore reads: ``http(s)://``, ``s3://``, ``gs://``."""

    listable = False
    versioned = False

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[type[Address], tuple[str]]:
        return Address, (self.path,)

    @cached_property
    def _folder(self) -> Any:
        return tensorstore().KvStore.open(self.kvstore("")).result()

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None where there is none."""
        try:
            found = self._folder.read(name).result(timeout=_SECONDS_TO_ANSWER)
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

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        whole = self.read(name)
        if whole is None:
            return None
        first = max(0, len(whole) - nbytes) if start is None else start
        return whole[first : first + nbytes]

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        whole = self.read(name)
        return None if whole is None else Status(len(whole), 1)

    def file(self, name: str) -> FileVersion | None:
        """Return None: a URL has no file."""
        return None

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
    return Archive(absolute)
