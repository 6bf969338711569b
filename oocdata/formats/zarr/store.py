"""Read the files of a Zarr hierarchy: in a folder, or at a URL (`remote`).

A `Store` reads metadata files and stored objects, and reports their versions. Stores of zarr-python
that the user opened are read by `user_store.UserStore`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from oocdata.engines.files import (
    FileVersion,
    OpenFile,
    Version,
    open_at_once,
    read_whole,
    unreadable,
    version_number,
)
from oocdata.errors import MissingFileError
from oocdata.formats.paths import is_url
from oocdata.threads import silent

_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)
"""Errors of a name without a file, or folder; none has a null byte or half a character."""


class Store:
    """The files of a Zarr hierarchy, by name. Picklable."""

    listable = False
    """Whether `status` is cheap enough for thousands of objects."""
    is_remote = False
    """Whether objects are in an object store, or behind HTTP."""
    versioned = False
    """Whether each object has a version of its own."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        return type(self), (self.path,)

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return ``[start:stop]`` of an object's bytes; None if there is no object."""
        raise NotImplementedError

    def fetch(self, name: str) -> tuple[Any, int] | None:
        """Return the bytes of an object and its version; see `status`."""
        whole = self.read(name)
        return None if whole is None else (whole, 1)

    def locate(self, name: str) -> tuple[Any, int] | None:
        """Return the `File` of an object, and its length; None if it is absent."""
        return None

    def prefetch(self, names: Sequence[str]) -> None:
        """Request metadata files at once, where each would take a round trip."""

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in a folder; None if they can't be listed."""
        return None

    def status(self, name: str) -> tuple[int, int] | None:
        """Return the size of an object, and a number that changes with its content, never 0.

        None if there is no object.
        """
        whole = self.read(name)
        return None if whole is None else (len(whole), 1)

    def file(self, name: str) -> Version | None:
        """Return the version of the file that holds an object; None if there is no file."""
        return None

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise if the array is known to have changed its shape."""


class Folder(Store):
    """A Zarr hierarchy in a folder."""

    listable = True
    versioned = True

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return the bytes of a file, or a part of them."""
        path = f"{self.path}/{name}"
        try:
            with open(path, "rb", opener=open_at_once) as file:
                nbytes = os.fstat(file.fileno()).st_size
                begin, end, _ = slice(start, stop).indices(nbytes)
                return os.pread(file.fileno(), end - begin, begin)
        except _NO_FILE:
            return None
        except OSError as error:
            raise unreadable(path, error) from error

    def fetch(self, name: str) -> tuple[Any, int] | None:
        """Return the bytes of a file and its version."""
        with suppress(MissingFileError):
            return read_whole(f"{self.path}/{name}")
        return None

    def locate(self, name: str) -> tuple[OpenFile, int] | None:
        """Return the file of an object, and its length; None if it is absent."""
        with suppress(FileNotFoundError, NotADirectoryError):
            version = FileVersion.of(f"{self.path}/{name}")
            return OpenFile(version), version.nbytes
        return None

    def status(self, name: str) -> tuple[int, int] | None:
        """Return size and version of an object's file."""
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.stat(f"{self.path}/{name}")
            return found.st_size, version_number(found)
        return None

    def file(self, name: str) -> FileVersion | None:
        """Return the version of an object's file."""
        return FileVersion.of(f"{self.path}/{name}")

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in a folder; none if it does not exist."""
        with (
            suppress(*_NO_FILE),
            os.scandir(os.path.join(self.path, key)) as entries,
        ):
            return [entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."]
        return []


def no_writer_warnings() -> AbstractContextManager[None]:
    """Silence zarr-python's warnings for writers during a block."""
    return silent(
        "Numcodecs codecs are not in the Zarr version 3",
        "Combining a `sharding_indexed` codec disables",
        "Found an empty list of filters in the array",  # as older zarr-python wrote them
    )


def join(*parts: str) -> str:
    """Join the nonempty parts of an object's name."""
    return "/".join(part for part in parts if part)


def store_of(path: str) -> Store:
    """Return the store at a path or URL."""
    if is_url(path):
        from oocdata.formats.zarr.remote import Remote  # not for `import oocdata`

        return Remote(path.rstrip("/"))
    # A worker process may have another working directory.
    absolute = os.path.abspath(path)
    if not os.path.isdir(absolute):
        raise MissingFileError("the folder of a Zarr must exist; it does not.", path=path)
    return Folder(absolute)
