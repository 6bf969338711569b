"""Write files atomically: a file appears under its name only once it is complete."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from glob import escape, glob
from typing import IO

from oocdata.errors import SourceError, error_text

NO_REPLACE, EXCHANGE = 1, 2
"""Flags of `rename_flagged`: fail if the name is taken; exchange two files or folders."""

_LONG = 3600
"""Seconds after which a temporary file is one of a writer that was killed."""

_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
"""Error numbers of a full disk; errors of HDF5 may have none."""

_HERE = -100
"""The current folder, for ``renameat2``."""


@contextmanager
def write_errors(path: str, key: str | None = None) -> Iterator[None]:
    """Raise write errors, such as those of a full disk, as `SourceError`; also those of HDF5."""
    try:
        yield
    except SourceError:
        raise
    except (OSError, RuntimeError) as error:
        hint = " Is the disk full?" if getattr(error, "errno", None) in _OF_SPACE else ""
        raise SourceError(
            f"the file must be writable; the system says: {error_text(error)}.{hint}",
            path=path,
            key=key,
        ) from error


@contextmanager
def atomic_file(
    path: str,
    temporary: str = "",
    *,
    sync: bool = True,
    replaces: bool = True,
    mode: int = 0o666,
) -> Iterator[IO[bytes]]:
    """Write a file in a block; it gets its name at the end, unless the block raises.

    `temporary` is a path to write to first, if only one process at a time writes it; by default a
    unique one. With `sync`, the file is on disk before it gets its name, and temporary files that a
    killed writer left an hour ago or earlier are removed. Unless it `replaces`, a file of that name
    stays, and the new file is dropped.
    """
    if sync and not temporary:
        _remove_unfinished(path)
    temporary = temporary or f"{path}.{os.urandom(8).hex()}.new"
    try:
        with open(temporary, "wb", opener=partial(os.open, mode=mode)) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if replaces:
            os.replace(temporary, path)
        else:
            _rename_if_free(temporary, path)
        if sync:
            sync_file(os.path.dirname(path) or ".")  # fsync of a file does not save its name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _remove_unfinished(path: str) -> None:
    """Remove the temporary files of a path that nobody has written to for long."""
    for unfinished in glob(f"{escape(path)}.{'[0-9a-f]' * 16}.new"):
        with suppress(OSError):
            if os.stat(unfinished).st_mtime < time.time() - _LONG:
                os.unlink(unfinished)


def _rename_if_free(temporary: str, path: str) -> None:
    # Not by a hard link: removing its other name changes the ctime of a file, and so its version.
    if not rename_flagged(temporary, path, NO_REPLACE) and not os.path.lexists(path):
        os.rename(temporary, path)


def rename_flagged(source: str, target: str, flag: int) -> bool:
    """Rename with Linux's ``renameat2``; return False if it is missing or fails."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    names = os.fsencode(source), os.fsencode(target)
    return rename is not None and rename(_HERE, names[0], _HERE, names[1], flag) == 0


def sync_file(path: str | os.PathLike[str]) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
