"""Files by path or URL: opened once for their headers, and read from then on by their version."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from oocdata.engines.files import File, FileVersion, OpenFile, Version
from oocdata.errors import SourceError

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["absolute", "file_of", "is_url", "opened", "refused_in", "stored_file", "version_of"]


def is_url(path: str) -> bool:
    """Return whether a path leads into a store; ``file://`` is a path.

    Examples
    --------
    >>> is_url("s3://bucket/a.npy"), is_url("/data/a.npy")
    (True, False)
    """
    return "://" in path and not path.startswith("file://")


def stored_file(url: str, version: Version | None = None) -> StoredFile:
    """Return the object at a URL as it is now, or a version of it."""
    from oocdata.stores.files import StoredFile, of_version  # not for `import oocdata`
    from oocdata.stores.versions import ObjectVersion

    return of_version(version) if isinstance(version, ObjectVersion) else StoredFile.at(url)


def version_of(path: str) -> Version:
    """Return the version that a file or an object has now."""
    return stored_file(path).version if is_url(path) else FileVersion.of(path)


def file_of(version: Version) -> File:
    """Return what reads a version of a file or of an object."""
    return (
        OpenFile(version)
        if isinstance(version, FileVersion)
        else stored_file(version.path, version)
    )


@contextmanager
def opened(
    path: str, step: int = 1024, version: Version | None = None
) -> Iterator[tuple[IO[bytes], Version]]:
    """Provide the bytes of a file or of an object as a stream, and which version it is.

    Of a store, `step` bytes are asked for at a time, or a block that holds them, and no others than
    those of a `version`.
    """
    if not is_url(path):
        with open(path, "rb") as file:
            yield file, FileVersion.of(path, os.fstat(file.fileno()))
        return
    found = stored_file(path, version)
    stream: Any = found.stream(step)
    with stream:
        yield stream, found.version


def refused_in(error: BaseException) -> SourceError | None:
    """Return the answer of a store for which a reader of archives or headers has its own error."""
    both = error, error.__context__
    return next((one for one in both if isinstance(one, SourceError)), None)


def absolute(path: str) -> str:
    """Return a path from the root on; a URL as it is."""
    return path if is_url(path) else os.path.abspath(path)
