"""Small files, and large ones, that are made of a file once and kept beside it.

A hidden file ``.reviews.txt.lines-0c4f…`` beside ``reviews.txt``, whose name holds which version of
the file it was made of; those of another one are removed. Where the folder can't be written to, it
lies in the user's folder for temporary files.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TypeVar

from oocdata.engines.files import FileVersion
from oocdata.engines.whole import whole_file
from oocdata.errors import SourceError

__all__ = ["kept_beside"]

Opened = TypeVar("Opened")


def kept_beside(
    version: FileVersion,
    kind: str,
    opened: Callable[[str], Opened | None],
    write: Callable[[IO[bytes]], None],
) -> Opened:
    """Return what is made of a file, by which it is made where there is none yet.

    `kind` is part of its name. `opened` opens it by its path, and returns None where the path leads
    to nothing whole; `write` writes it. If it can be written nowhere, it is a `SourceError`.
    """
    from hashlib import blake2b  # not for `import oocdata`

    folder, name = os.path.split(version.path)
    # The same by any path and on any machine that shares the folder: the device is not.
    which = repr((version.inode, version.nbytes, version.modified, version.changed))
    whose = blake2b(version.path.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    digest = blake2b(which.encode(), digest_size=8).hexdigest()
    reasons = []
    for place, whole in ((folder, name), (_own_folder(), f"{whose}-{name}")):
        stem = f".{whole}.{kind}-"
        path = os.path.join(place, stem + digest)
        try:
            # What another process writes meanwhile is the same, and in use there.
            taken = os.path.lexists(path)
            found = _found(path, opened)
            if found is None:
                _write(path, write, replaces=taken)
                found = _found(path, opened)
                _remove_others(place, stem, path)
            if found is not None:
                return found
        except SourceError:
            raise
        except OSError as error:
            reasons.append(str(error))
    raise SourceError(
        f"what is made of it ({kind}) must be kept in a file beside it, or in the folder for "
        f"temporary files; neither could be written: {'; '.join(reasons)}.",
        path=version.path,
    )


def _own_folder() -> str:
    """Return the user's own folder for temporary files: in the common one, anybody may write."""
    import tempfile  # not for `import oocdata`

    return os.path.join(tempfile.gettempdir(), f"oocdata-{os.getuid()}")


def _found(path: str, opened: Callable[[str], Opened | None]) -> Opened | None:
    """Open what is kept, if there is such a file of this user or of the folder's owner."""
    try:
        owner = os.stat(path).st_uid
        trusted = owner in (os.getuid(), os.stat(os.path.dirname(path)).st_uid)
    except OSError:
        return None
    return opened(path) if trusted else None


def _write(path: str, write: Callable[[IO[bytes]], None], *, replaces: bool) -> None:
    """Write a file whole or not at all."""
    folder = os.path.dirname(path)
    if folder == _own_folder():
        os.makedirs(folder, mode=0o700, exist_ok=True)
    # What a killed process leaves is removed with those of other versions.
    with whole_file(path, replaces=replaces) as file:
        os.fchmod(file.fileno(), 0o600)  # no wider than the file that it is made of
        write(file)


def _remove_others(folder: str, name: str, path: str) -> None:
    """Remove what was made of other versions of a file."""
    for other in glob.glob(glob.escape(os.path.join(folder, name)) + "*"):
        if other != path:
            with suppress(OSError):
                os.unlink(other)
