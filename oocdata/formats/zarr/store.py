"""Where the files of a Zarr hierarchy lie: a folder, a ZIP archive, or a URL (`remote`).

A `Store` reads a metadata file, asks for the version of a stored object, and says how TensorStore
or zarr-python gets at the same place. `held.Held` is the fourth, one that the user opened.
"""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from oocdata.engines.files import FileVersion, Version
from oocdata.errors import MissingFileError, UnknownFormatError
from oocdata.formats.stored import is_url
from oocdata.formats.zarr.tensorstore import INDEX_POOL

__all__ = ["Archive", "Folder", "Status", "Store", "calm", "join", "store_of"]

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class Status(NamedTuple):
    """What is known of one stored object; another `version`, never 0, for another content."""

    nbytes: int
    version: int


class Store:
    """The files of a Zarr hierarchy, by name. Picklable."""

    listable = False
    """Whether asking for the status of thousands of objects is cheap."""
    reads_parts = True
    """Whether a part of an object is read without the rest."""
    is_remote = False
    """Whether its objects lie in a store, or behind HTTP."""
    versioned = False
    """Whether each object has a version of its own."""
    zarr_only = ""
    """Why TensorStore can't read it; empty where it can."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        return type(self), (self.path,)

    def read(self, name: str, part: int = 0) -> bytes | None:
        """Return the bytes of a file; its first `part`, or its last if negative; None without."""
        raise NotImplementedError

    def prefetch(self, names: Sequence[str]) -> None:
        """Ask at once for metadata files that may be read, where each would be a round trip."""

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in one; None where they can't be listed."""
        return None

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        whole = self.read(name)
        return None if whole is None else Status(len(whole), 1)

    def file(self, name: str) -> Version | None:
        """Return the version of the file in which an object lies; None where there is no file."""
        return None

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        raise NotImplementedError

    def zarr_store(self) -> Any:
        """Return what zarr-python opens: a path, or a store of its own."""
        return self.path

    def open_by_zarr(self, key: str, version: int) -> Any:
        """Return an array, opened by zarr-python."""
        import zarr

        with calm():
            return zarr.open_array(
                self.zarr_store(), path=key, mode="r", zarr_format=3 if version == 3 else 2
            )


class Folder(Store):
    """A Zarr hierarchy in a folder."""

    listable = True
    versioned = True

    def read(self, name: str, part: int = 0) -> bytes | None:
        """Return the bytes of a file, or `part` of them."""
        try:
            with open(f"{self.path}/{name}", "rb") as file:
                if part < 0:
                    file.seek(max(0, os.fstat(file.fileno()).st_size + part))
                return file.read(abs(part) or None)
        except _NO_FILE:
            return None

    def status(self, name: str) -> Status | None:
        """Return size and version of an object's file."""
        try:
            found = os.stat(f"{self.path}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        # Numbers hash alike in every process, so a worker can compare.
        size = found.st_size
        version = (found.st_dev, found.st_ino, size, found.st_mtime_ns, found.st_ctime_ns)
        return Status(size, hash(version) or 1)

    def file(self, name: str) -> FileVersion | None:
        """Return the version of an object's file."""
        return FileVersion.of(f"{self.path}/{name}")

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in one; none where it is not there."""
        try:
            with os.scandir(os.path.join(self.path, key)) as entries:
                return [entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        return {"driver": "file", "path": os.path.join(self.path, key, "")}


class Archive(Store):
    """A Zarr hierarchy in a ZIP archive, whose version is that of all its objects."""

    listable = True
    reads_parts = False  # from the beginning only, by zipfile

    def __init__(self, path: str) -> None:
        super().__init__(path)
        names = self._archive.namelist()
        self.names = frozenset(names)
        if len(names) > len(self.names):  # what was written last counts
            self.zarr_only = "members of one name"
        elif any(one.compress_type == zipfile.ZIP_LZMA for one in self._archive.infolist()):
            self.zarr_only = "members in LZMA"

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

    def read(self, name: str, part: int = 0) -> bytes | None:
        """Return the bytes of a member, or `part` of them."""
        if name not in self.names:
            return None
        try:
            return _cut(self._archive.read(name), part)
        except zipfile.BadZipFile as error:
            raise UnknownFormatError(
                f"the member {name!r} must be readable; {error}.", path=self.path
            ) from error

    def status(self, name: str) -> Status | None:
        """Return the size of a member."""
        if name not in self.names:
            return None
        return Status(self._archive.getinfo(name).file_size, 1)

    def file(self, name: str) -> FileVersion | None:
        """Return the version of the archive."""
        return FileVersion.of(self.path)

    def kvstore(self, key: str) -> Any:
        """Return TensorStore's specification of the folder of an array."""
        return {
            "driver": "zip",
            "base": {"driver": "file", "path": self.path},
            "path": f"{key}/" if key else "",
            # Without a cache the directory of the archive would be read with every chunk.
            "cache_pool": INDEX_POOL,
        }

    def zarr_store(self) -> Any:
        """Return a store of zarr-python."""
        from zarr.storage import ZipStore

        return ZipStore(self.path, mode="r", read_only=True)


@contextmanager
def calm() -> Iterator[None]:
    """Silence warnings that are for writers: codecs outside the specification, slow shards."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        warnings.filterwarnings("ignore", message="Combining a `sharding_indexed` codec disables")
        # An empty list of filters is what the older zarr-python wrote.
        warnings.filterwarnings("ignore", message="Found an empty list of filters in the array")
        yield


def join(*parts: str) -> str:
    """Return the name of an object below a key: no part of it empty."""
    return "/".join(part for part in parts if part)


def _cut(whole: bytes, part: int) -> bytes:
    return whole[part:] if part < 0 else whole[: part or None]


def store_of(path: str) -> Store:
    """Return the store at a path or URL."""
    if is_url(path):
        from oocdata.formats.zarr.remote import Remote  # not for `import oocdata`

        return Remote(path.rstrip("/"))
    if path.startswith("file://"):
        from urllib.parse import unquote

        path = unquote("/" + path.removeprefix("file://").partition("/")[2])
    # A worker process may stand in another folder.
    absolute = os.path.abspath(path)
    if os.path.isdir(absolute):
        return Folder(absolute)
    if not os.path.exists(absolute):
        raise MissingFileError("the Zarr folder or archive must exist; it does not.", path=path)
    return Archive(absolute)
