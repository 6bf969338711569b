"""Read manifests: checksums of all rows of a file, in a file beside it.

A manifest is an ``.npz`` with stored members, so that rows of its tables are read by offset:

``manifest.json``
    ``{"format": 2, "checksum": "xxh3-64", "name", "written", "datasets"}``; each of ``datasets`` is
    ``{"key", "shape", "dtype", "axis", "unit_rows", "member"}``.
``rows/0.npy``, … uint64
    The XXH3 (64 bits, seed 0) of each unit of ``unit_rows`` consecutive rows of a dataset, of the
    numbers as delivered: little-endian, in C order, row axis first. The last may be shorter.

So checksums hold for the same array in another format too. An accidental change goes unnoticed with
a probability of about 2⁻⁶⁴; CRC-32C takes three times as long on rows of 60 KB.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.source import Source
from oocdata.errors import ManifestError, MissingFileError, UnsupportedDtypeError
from oocdata.formats.npz import NpzTree
from oocdata.index import as_count

CHECKSUM = "xxh3-64"

_UNIT_BYTES = 512
"""Smaller rows share a checksum, so that a table takes at most 1/64 of its array."""

FORMAT = 2
"""Version of the manifest format."""

_SUFFIX = ".manifest"


@dataclass(frozen=True, slots=True)
class RowChecksums:
    """Description of the checksums of a dataset: an entry of ``datasets``."""

    key: str | None
    shape: tuple[int, ...]  #: ``(rows, *element)``
    dtype: str  #: as delivered, in little-endian byte order, e.g. ``"<f4"``
    axis: int  #: the row axis in storage
    unit_rows: int  #: rows per checksum
    member: str  #: name of the table

    @property
    def units(self) -> int:
        """Number of checksums."""
        return -(-self.shape[0] // self.unit_rows)


def _checked(
    key: Any, shape: Any, dtype: Any, axis: Any, unit_rows: Any, member: Any
) -> RowChecksums:
    """Return an entry of ``datasets``; raise `TypeError` or `ArgumentError` if it can't be one."""
    if not (isinstance(key, str | None) and isinstance(member, str) and isinstance(dtype, str)):
        raise TypeError(f"an entry must have texts; got {key!r}, {dtype!r} and {member!r}")
    lengths = tuple(as_count("shape", length, at_least=0) for length in shape)
    row_axis = as_count("axis", axis, at_least=0, at_most=len(lengths) - 1)
    name = np.dtype(dtype).str
    return RowChecksums(key, lengths, name, row_axis, as_count("unit_rows", unit_rows), member)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``; tables are read on demand."""

    path: str  #: of the manifest
    name: str  #: of the file or folder that it describes
    datasets: tuple[RowChecksums, ...]

    @classmethod
    def read(cls, path: str) -> Manifest:
        """Read a manifest without its tables; raises `ManifestError` if it is damaged."""
        if not os.path.isfile(path):
            raise MissingFileError(
                "the manifest must exist; it does not. Write it: oocdata check PATH "
                "--write-manifest.",
                path=path,
            )
        import json
        import zipfile  # not for `import oocdata`

        with _damage(path), zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read("manifest.json"))
            if content["format"] != FORMAT or content["checksum"] != CHECKSUM:
                raise ValueError(f"it has format {content['format']!r}, {content['checksum']!r}")
            datasets = tuple(_checked(**entry) for entry in content["datasets"])
            return cls(path, content["name"], datasets)

    def check_whole(self) -> None:
        """Raise if a table is damaged, according to the CRC-32 of each member."""
        import zipfile

        with _damage(self.path), zipfile.ZipFile(self.path) as archive:
            damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(f"its member {damaged!r} fails its CRC-32")
        for rows in self.datasets:
            self.table(rows.member)

    def table(self, member: str) -> Source:
        """Open a table of checksums, shape ``(n,)`` uint64; reads its header only."""
        with _damage(self.path):
            with NpzTree(self.path) as tables:
                table = tables.open(member)
            if table.dtype != np.uint64 or len(table.shape) != 1:
                raise ValueError(f"{member} holds {table.dtype} of shape {table.shape}")
            return table

    def dataset(self, key: str | None) -> RowChecksums:
        """Return the checksums of a key; or the only ones, if either has no key."""
        name = "" if key is None else key.strip("/")
        matching = [rows for rows in self.datasets if (rows.key or "").strip("/") == name]
        if matching:
            return matching[0]
        if len(self.datasets) == 1 and not (name and self.datasets[0].key):
            return self.datasets[0]
        known = ", ".join(repr(rows.key) for rows in self.datasets[:20]) or "no dataset"
        raise ManifestError(
            f"the manifest must hold the checksums of {key!r}; it holds those of {known}. "
            "Write it anew: oocdata check PATH --write-manifest --overwrite.",
            path=self.path,
        )

    def check(self, rows: RowChecksums, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise if checksums belong to an array of another shape ``(rows, *element)`` or dtype."""
        if rows.shape != shape or rows.dtype != dtype.newbyteorder("<").str:
            raise ManifestError(
                f"the manifest must be of an array of shape {shape}, {dtype}; it is of "
                f"{rows.shape}, {np.dtype(rows.dtype)}, row axis {rows.axis}. It belongs to other "
                "data, or to another row axis.",
                path=self.path,
                key=rows.key,
            )


def manifest_path(target: str) -> str:
    """Return the default path of the manifest of a file or folder, beside it."""
    if os.path.basename(target.rstrip("/")) in ("", ".", ".."):
        target = os.path.abspath(target)
    return target.rstrip("/") + _SUFFIX


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Raise any error in the block as that of a damaged manifest.

    A damaged archive may raise anything: struct.error, UnicodeDecodeError, zlib.error, …
    """
    try:
        yield
    except MissingFileError:
        raise
    except Exception as error:
        raise ManifestError(
            f"the manifest must be readable; {error}. It is damaged or none: write it anew from "
            "data that you trust.",
            path=path,
        ) from error


def unit_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the number of rows that share a checksum: one, or enough small rows for 512 bytes."""
    if dtype.hasobject:
        raise UnsupportedDtypeError(
            "rows must be of one length to have checksums; these are bytes of unequal length."
        )
    row_bytes = prod(shape[1:]) * dtype.itemsize
    return max(1, -(-_UNIT_BYTES // max(1, row_bytes)))


def checksums_of(rows: NDArray[Any], unit: int) -> NDArray[np.uint64]:
    """Return the checksums of rows, shape (n, *element), of any byte order.

    Each is that of `unit` rows; the last unit may be shorter.
    """
    from xxhash import xxh3_64_intdigest  # not for `import oocdata`

    checksum: Callable[[Any], int] = xxh3_64_intdigest
    count = len(rows)
    little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
    nbytes = little.nbytes // max(1, count) * unit
    if not nbytes:
        return np.full(-(-count // unit), checksum(b""), np.uint64)
    data = little.reshape(-1).view(np.uint8)
    full = count // unit
    # NumPy iterates over rows in C; slicing them in Python takes twice as long as the hash.
    units = data[: full * nbytes].reshape(full, nbytes)
    checksums = np.fromiter(map(checksum, units), np.uint64, full)
    if full * unit < count:
        checksums = np.append(checksums, np.uint64(checksum(data[full * nbytes :])))
    return checksums
