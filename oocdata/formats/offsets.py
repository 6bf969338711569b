"""Open files of rows of varying length by their offsets, found in one scan of the file.

Offsets are in a sidecar file: 4,096 bytes of JSON (numbers of rows by size), then an int64 per row
and one for the end of the last. They are read like any array, so they take no memory. A compressed
file is decompressed once, to another sidecar file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import IO, Any

import numpy as np

from oocdata.box import Ints
from oocdata.engines.byte_rows import ByteRows, Framing, size_counts
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided
from oocdata.formats.npy import open_raw
from oocdata.formats.sidecar import is_gzip, open_sidecar, unchanging, unpacked

Scan = Callable[[IO[bytes]], Iterator[Ints]]
"""Yields the ascending offsets of an open file's rows in arrays, and at last the end of the last
row."""

_HEADER = 4096


def open_rows(
    path: str, kind: str, scan: Scan, framing: Framing, described: Storage, **opened: Any
) -> ByteRows:
    """Open a file of rows of varying length (`kind`, e.g. lines), plain or compressed.

    `described` has the format and how it is read; `opened` has the arguments of `oocdata.open`
    besides the path. Raises `SourceError` if the file can't be read, or the offsets not be written.
    """
    version = FileVersion.of(path)
    plain = unpacked(version) if is_gzip(path) else version
    # The offsets are a sidecar file of `path`, so that those of old versions are removed.
    offsets, sizes = open_sidecar(version, kind, read_offsets, partial(write_offsets, plain, scan))
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
    # Not by its path, at which another version may lie by now.
    content = Storage("raw", plain.path, files=(plain,))
    stored = Strided(OpenFile(plain), np.dtype("u1"), (plain.nbytes,), (1,), 0, content)
    return ByteRows(stored, offsets, framing, storage)


def read_offsets(path: str) -> tuple[Source, tuple[int, ...]] | None:
    """Open a file of offsets, and read the counts of its size classes; None if it is damaged."""
    import json  # not for `import oocdata`

    try:
        source = open_raw(path, dtype="<i8", shape=(-1,), offset=_HEADER)
        with open(path, "rb") as file:
            header = json.loads(file.read(_HEADER))
        rows, sizes = header["rows"], header["sizes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (source, tuple(sizes)) if source.shape == (rows + 1,) else None


def write_offsets(version: FileVersion, scan: Scan, file: IO[bytes]) -> None:
    """Write the offsets that a scan of a file yields to another file."""
    import json  # not for `import oocdata`

    file.write(bytes(_HEADER))
    counts, rows, last = size_counts(np.empty(0, np.int64)), -1, np.empty(0, np.int64)
    with unchanging(version) as scanned:
        for offsets in scan(scanned):
            file.write(offsets.astype("<i8", copy=False).tobytes())
            counts += size_counts(np.diff(offsets, prepend=last))
            rows, last = rows + len(offsets), offsets[-1:]
    file.seek(0)
    file.write(json.dumps({"rows": rows, "sizes": counts.tolist()}).encode().ljust(_HEADER))
