"""Store results derived from a file in a hidden sidecar file next to it.

That of ``reviews.txt`` is ``.reviews.txt.lines-0c4f…``, with a digest of the file's version; those
of other versions are removed. If the folder is not writable, it is in the user's temporary folder.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TypeVar

from oocdata.engines.atomic import atomic_file
from oocdata.engines.files import FileVersion
from oocdata.errors import SourceError

Result = TypeVar("Result")


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
    """Open a sidecar file if it exists and belongs to this user or to the folder's owner."""
    try:
        owner = os.stat(path).st_uid
        trusted = owner in (os.getuid(), os.stat(os.path.dirname(path)).st_uid)
    except OSError:
        return None
    return read(path) if trusted else None


def _write(
    path: str, read: Callable[[str], Result | None], write: Callable[[IO[bytes]], None]
) -> Result | None:
    """Write a sidecar file atomically, readable by this user only, and open it."""
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
