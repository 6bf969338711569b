"""Decompress files once into a sidecar file, whose rows have offsets.

1 GB of text takes 10 s once; decoding blocks of lines takes that in every epoch, and an index of
restart points (``indexed_gzip``) 30 ms a line.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from oocdata.engines.files import FileVersion
from oocdata.errors import DamagedChunkError, TruncatedFileError, UnknownFormatError, error_location
from oocdata.formats.sidecar import open_sidecar

_BLOCK = 1 << 20

_GZIP = b"\x1f\x8b\x08"
_OTHERS = (b"BZh91AY&SY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
"""First bytes of bzip2 (its default), xz and Zstandard."""


def is_gzip(path: str) -> bool:
    """Return whether a file is compressed by gzip; `UnknownFormatError` if by another program."""
    with open(path, "rb") as file:
        head = file.read(16)
    if head.startswith(_OTHERS):
        raise UnknownFormatError(
            "a compressed file of text or TFRecord must be of gzip. Unpack it first.",
            path=path,
        )
    return head.startswith(_GZIP)


def head_of(path: str) -> bytes:
    """Return the first 64 bytes of a gzip file's content; none if they can't be decompressed."""
    try:
        with gzip.open(path) as file:
            return file.read(64)
    except (OSError, EOFError, zlib.error):
        return b""


@contextmanager
def unchanging(version: FileVersion) -> Iterator[IO[bytes]]:
    """Open a file to read it whole; raise if it is not of this version, before or afterwards."""
    with open(version.path, "rb") as file:
        version.compare(os.fstat(file.fileno()))
        try:
            yield file
        finally:
            version.compare(os.fstat(file.fileno()))


def unpacked(
    version: FileVersion,
    kind: str = "unpacked",
    decompressor: Callable[[IO[bytes]], Any] = lambda packed: gzip.GzipFile(fileobj=packed),
) -> FileVersion:
    """Return the version of the sidecar file of this `kind` with a file's decompressed content.

    `decompressor` opens the content in the open file.
    """

    def write(file: IO[bytes]) -> None:
        with unchanging(version) as packed:
            try:
                shutil.copyfileobj(decompressor(packed), file, _BLOCK)
            except EOFError as error:
                raise TruncatedFileError(
                    "the file must hold all of its compressed bytes; they stop early. It was cut "
                    "short."
                ) from error
            except Exception as error:  # damaged bytes may raise anything: struct.error, …
                if getattr(error, "errno", None) is not None:  # of the disk
                    raise
                raise DamagedChunkError(
                    f"the file must unpack; {error}. It was damaged after it was written. Copy it "
                    "again from where it came from."
                ) from error

    with error_location(version.path):
        return open_sidecar(version, kind, FileVersion.of, write)
