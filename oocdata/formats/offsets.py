"""Where the rows of a file begin that nothing in the file says: found once, and kept beside it.

The offsets are a small file (`oocdata.formats.beside`): 4,096 bytes of JSON (how many rows of which
size there are), then an int64 a row and one for the end. They are read by row like any other array,
so a file of any number of rows takes no memory.

What gzip has compressed has no places to begin at. It is unpacked once, to a file beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.byte_rows import ByteRows, Framing, size_counts
from oocdata.engines.files import FileVersion
from oocdata.engines.source import Source, Storage
from oocdata.formats.beside import kept_beside
from oocdata.formats.gzipped import is_gzip, unpacked
from oocdata.formats.npy import open_raw

__all__ = ["Scan", "open_rows", "read_offsets", "write_offsets"]

Ints = NDArray[np.int64]

Scan = Callable[[FileVersion], Iterator[Ints]]
"""Yields where rows of a file begin, and at last where the last one ends: ascending, in parts."""

_HEADER = 4096


def open_rows(
    path: str, kind: str, scan: Scan, framing: Framing, described: Storage, **opened: Any
) -> ByteRows:
    """Open a file of rows of unequal length, called `kind`, as it is or compressed by gzip.

    `described` tells its format, and how it is read; `opened` is what `oocdata.open` was given
    besides the path. A `SourceError` if it can't be read, or its offsets can be written nowhere.
    """
    version = FileVersion.of(path)
    plain = unpacked(version) if is_gzip(path) else version
    # Named after the file itself, so that those of an earlier version are found and removed.
    offsets, sizes = kept_beside(
        version, kind, read_offsets, partial(write_offsets, partial(scan, plain))
    )
    storage = replace(
        described,
        path=version.path,
        layout=kind,
        codec="none" if plain is version else f"gzip, unpacked to {plain.path}",
        stored_bytes=version.nbytes,
        files=(version,),
        opened={"target": version.path, **opened},
        row_sizes=sizes,
    )
    return ByteRows(open_raw(plain.path, dtype="u1", shape=(-1,)), offsets, framing, storage)


def read_offsets(path: str) -> tuple[Source, tuple[int, ...]] | None:
    """Return the offsets that a file holds, with the size classes; None if it is none such."""
    import json  # not for `import oocdata`

    try:
        source = open_raw(path, dtype="<i8", shape=(-1,), offset=_HEADER)
        with open(path, "rb") as file:
            told = json.loads(file.read(_HEADER))
        rows, sizes = told["rows"], told["sizes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (source, tuple(sizes)) if source.shape == (rows + 1,) else None


def write_offsets(scan: Callable[[], Iterator[Ints]], file: IO[bytes]) -> None:
    """Write the offsets of the rows of a file."""
    import json  # not for `import oocdata`

    file.write(bytes(_HEADER))
    counts, rows, last = size_counts(np.empty(0, np.int64)), -1, np.empty(0, np.int64)
    for offsets in scan():
        file.write(offsets.astype("<i8", copy=False).tobytes())
        counts += size_counts(np.diff(offsets, prepend=last))
        rows, last = rows + len(offsets), offsets[-1:]
    file.seek(0)
    file.write(json.dumps({"rows": rows, "sizes": counts.tolist()}).encode().ljust(_HEADER))
