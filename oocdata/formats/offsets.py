"""Where the rows of a file begin that nothing in the file says: found once, and kept beside it.

The offsets are a small hidden file, ``.reviews.txt.lines-0c4f…`` beside ``reviews.txt``: 4,096
bytes of JSON (how many rows of which size there are), then an int64 a row and one for the end. They
are read by row like any other array, so a file of any number of rows takes no memory. The name
holds which version of the file they are of; those of another one are removed. Where the folder
can't be written to, they lie in the user's folder for temporary files.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.byte_rows import ByteRows, Framing, size_counts
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError
from oocdata.formats.npy import open_raw

__all__ = ["Scan", "offsets_of", "open_rows"]

Ints = NDArray[np.int64]

Scan = Callable[[FileVersion], Iterator[Ints]]
"""Yields where rows begin, ascending, and at last where the last one ends: arrays, a few at a time.
"""

_HEADER = 4096


def open_rows(
    path: str, kind: str, scan: Scan, framing: Framing, described: Storage, **opened: Any
) -> ByteRows:
    """Open a file of rows of unequal length.

    Parameters
    ----------
    path : str
    kind : str
        What its rows are: ``"lines"``.
    scan : callable
        Finds where they begin.
    framing : Framing
    described : Storage
        Its format, and how it is read.
    **opened
        What `oocdata.open` was given besides the path.
    """
    version = FileVersion.of(path)
    offsets, sizes = offsets_of(version, kind, scan)
    storage = replace(
        described,
        path=version.path,
        layout=f"{offsets.shape[0] - 1} {kind}",
        codec="none",
        stored_bytes=version.nbytes,
        files=(version,),
        opened={"target": version.path, **opened},
        row_sizes=sizes,
    )
    return ByteRows(open_raw(path, dtype="u1", shape=(-1,)), offsets, framing, storage)


def offsets_of(version: FileVersion, kind: str, scan: Scan) -> tuple[Source, tuple[int, ...]]:
    """Return where the rows of a file begin, and how many there are of each size class.

    Parameters
    ----------
    version : FileVersion
    kind : str
        What rows are; part of the name of the file of offsets.
    scan : callable
        Finds them, where there is no such file yet.

    Returns
    -------
    offsets : Source
        int64, shape ``(rows + 1,)``.
    sizes : tuple of int
        See `oocdata.engines.byte_rows.size_counts`.

    Raises
    ------
    oocdata.errors.SourceError
        If the file can't be read, or its offsets can be written nowhere.
    """
    from hashlib import blake2b  # not for `import oocdata`

    folder, name = os.path.split(version.path)
    which = repr((version.device, version.inode, version.nbytes, version.modified, version.changed))
    digest = blake2b(f"{version.path}{which}".encode(errors="surrogateescape"), digest_size=8)
    name = f".{name}.{kind}-"
    reasons = []
    for place in (folder, _own_folder()):
        path = os.path.join(place, name + digest.hexdigest())
        try:
            found = _read(path)
            if found is None:
                _write(path, scan(version))
                found = _read(path)
                _remove_others(place, name, path)
            if found is not None:
                return found
        except SourceError:
            raise
        except OSError as error:
            reasons.append(str(error))
    raise SourceError(
        "where its rows begin must be kept in a file beside it, or in the folder for temporary "
        f"files; neither could be written: {'; '.join(reasons)}.",
        path=version.path,
    )


def _own_folder() -> str:
    """Return the user's own folder for temporary files: in the common one, anybody may write."""
    import tempfile  # not for `import oocdata`

    return os.path.join(tempfile.gettempdir(), f"oocdata-{os.getuid()}")


def _read(path: str) -> tuple[Source, tuple[int, ...]] | None:
    """Return the offsets that a file holds, with the size classes; None if it is none such."""
    import json  # not for `import oocdata`

    try:
        if os.stat(path).st_uid not in (os.getuid(), os.stat(os.path.dirname(path)).st_uid):
            return None
        source = open_raw(path, dtype="<i8", shape=(-1,), offset=_HEADER)
        with open(path, "rb") as file:
            told = json.loads(file.read(_HEADER))
        rows, sizes = told["rows"], told["sizes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (source, tuple(sizes)) if source.shape == (rows + 1,) else None


def _write(path: str, scanned: Iterator[Ints]) -> None:
    """Write offsets, whole or not at all."""
    import json  # not for `import oocdata`
    import tempfile

    folder = os.path.dirname(path)
    if folder == _own_folder():
        os.makedirs(folder, mode=0o700, exist_ok=True)
    number, temporary = tempfile.mkstemp(dir=folder, prefix=".oocdata-")
    try:
        with open(number, "wb") as file:
            file.write(bytes(_HEADER))
            counts, rows, last = size_counts(np.empty(0, np.int64)), -1, np.empty(0, np.int64)
            for offsets in scanned:
                file.write(offsets.astype("<i8", copy=False).tobytes())
                counts += size_counts(np.diff(offsets, prepend=last))
                rows, last = rows + len(offsets), offsets[-1:]
            file.seek(0)
            told = {"rows": rows, "sizes": counts.tolist()}
            file.write(json.dumps(told).encode().ljust(_HEADER))
            file.flush()
            os.fsync(number)
        # What another process has written meanwhile is the same, and in use there.
        if _read(path) is None:
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _remove_others(folder: str, name: str, path: str) -> None:
    """Remove the offsets of other versions of a file."""
    for other in glob.glob(glob.escape(os.path.join(folder, name)) + "*"):
        if other != path:
            with suppress(OSError):
                os.unlink(other)
