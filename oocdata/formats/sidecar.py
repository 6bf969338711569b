"""Store results derived from a file in a hidden sidecar file next to it.

That of ``reviews.txt`` is ``.reviews.txt.lines-0c4f…``, with a digest of the file's version; those
of other versions are removed. If the folder is not writable, it is in the user's temporary folder.

Compressed files are unpacked so. 1 GB of text takes 10 s once; decoding blocks of lines takes that
in every epoch, and an index of restart points (``indexed_gzip``) 30 ms a line.
"""

from __future__ import annotations

import glob
import gzip
import os
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, TypeVar

from oocdata.engines.atomic import atomic_file
from oocdata.engines.files import FileVersion
from oocdata.errors import (
    DamagedChunkError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    error_location,
)

Result = TypeVar("Result")

_BLOCK = 1 << 20

_GZIP = b"\x1f\x8b\x08"
_OTHERS = (b"BZh91AY&SY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
"""First bytes of bzip2 (its default), xz and Zstandard."""


def open_sidecar(
    version: FileVersion,
    kind: str,
    read: Callable[[str], Result | None],
    write: Callable[[IO[bytes]], None],
) -> Result:
    """Open the sidecar file of a version of a file, and write it first if there is none.

    `kind` becomes part of the name. `read` opens a sidecar file by its path, and returns None if
    the file is damaged; `write` writes it. Raises `SourceError` if neither folder is writable.
    """
    from hashlib import blake2b  # not for `import oocdata`

    folder, name = os.path.split(version.path)
    # Without the device, which differs between machines that share the folder.
    identity = repr((version.inode, version.nbytes, version.modified, version.changed))
    path_digest = blake2b(version.path.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    digest = blake2b(identity.encode(), digest_size=8).hexdigest()
    reasons = []
    for place, unique_name in ((folder, name), (_user_folder(), f"{path_digest}-{name}")):
        stem = f".{unique_name}.{kind}-"
        path = os.path.join(place, stem + digest)
        try:
            result = _open_trusted(path, read)
            if result is None:
                result = _write(path, read, write)
                _remove_others(place, stem, path)
            if result is not None:
                return result
        except SourceError:
            raise
        except OSError as error:
            reasons.append(str(error))
    raise SourceError(
        f"a file derived from this one ({kind}) must be stored beside it, or in the folder for "
        f"temporary files; neither could be written: {'; '.join(reasons)}.",
        path=version.path,
    )


def _user_folder() -> str:
    """Return the user's folder for temporary files; anybody may write to the common one."""
    import tempfile  # not for `import oocdata`

    return os.path.join(tempfile.gettempdir(), f"oocdata-{os.getuid()}")


def _open_trusted(path: str, read: Callable[[str], Result | None]) -> Result | None:
    try:
        entry, folder = os.stat(path), os.stat(os.path.dirname(path))
    except OSError:
        return None
    trusted = entry.st_uid in (os.getuid(), folder.st_uid)
    return read(path) if trusted and stat.S_ISREG(entry.st_mode) else None


def _write(
    path: str, read: Callable[[str], Result | None], write: Callable[[IO[bytes]], None]
) -> Result | None:
    if (folder := os.path.dirname(path)) == _user_folder():
        os.makedirs(folder, mode=0o700, exist_ok=True)
    result = None
    # A file that another process has written meanwhile is replaced only if it is damaged.
    for replaces in (False, True):
        if result is None:
            # `_remove_others` removes the unfinished files of killed processes.
            with atomic_file(path, replaces=replaces, mode=0o600) as file:
                write(file)
            result = _open_trusted(path, read)
    return result


def _remove_others(folder: str, name: str, path: str) -> None:
    for other in glob.glob(glob.escape(os.path.join(folder, name)) + "*"):
        if other != path:
            with suppress(OSError):
                os.unlink(other)


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
