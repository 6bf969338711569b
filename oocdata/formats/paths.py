"""Open files by path or URL: a stream for reading headers, and a `File` for reading data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import IO, TYPE_CHECKING

from oocdata.engines.files import File, FileVersion, OpenFile, Version, unreadable
from oocdata.errors import SourceError

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile


def is_url(path: str) -> bool:
    """Return whether a path is the URL of an object in a store; ``file://`` counts as a path."""
    return "://" in path and not path.startswith("file://")


def stored_file(url: str, version: Version | None = None) -> StoredFile:
    """Return the object at a URL: its current version, or the given one."""
    from oocdata.stores.files import StoredFile, file_of_version  # not for `import oocdata`
    from oocdata.stores.versions import ObjectVersion

    return file_of_version(version) if isinstance(version, ObjectVersion) else StoredFile.at(url)


def version_of(path: str) -> Version:
    """Return the current version of a file or an object."""
    return stored_file(path).version if is_url(path) else FileVersion.of(path)


def file_of(version: Version) -> File:
    """Return the `File` that reads a version of a file or an object."""
    return (
        OpenFile(version)
        if isinstance(version, FileVersion)
        else stored_file(version.path, version)
    )


@contextmanager
def open_stream(
    path: str, step: int = 1024, version: Version | None = None
) -> Iterator[tuple[IO[bytes], Version]]:
    """Open a file or an object as a stream of bytes; yield it with its version.

    An object is fetched `step` bytes at a time, or in the blocks that hold them. If `version` is
    given, reading any other version of the object fails.
    """
    if not is_url(path):
        try:
            with open(path, "rb") as file:
                yield file, FileVersion.of(path, os.fstat(file.fileno()))
        except SourceError:
            raise
        except OSError as error:
            raise unreadable(path, error) from error
        return
    from oocdata.stores.blocks import ObjectStream  # not for `import oocdata`

    file_at = stored_file(path, version)
    with BufferedReader(ObjectStream(file_at), step) as stream:
        yield stream, file_at.version


def store_error_in(error: BaseException) -> SourceError | None:
    """Return the store's error that a parser of archives or headers replaced by its own, if any."""
    chain = error, error.__context__
    return next((cause for cause in chain if isinstance(cause, SourceError)), None)


def absolute(path: str) -> str:
    """Return the absolute path of a file; a URL is returned unchanged."""
    return path if is_url(path) else os.path.abspath(path)
