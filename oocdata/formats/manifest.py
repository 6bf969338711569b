"""Manifests: what a file held when it was healthy, as checksums in one file beside it.

A manifest is an ``.npz`` whose members are stored and not compressed (the ZIP archive of
`numpy.savez`), so that NumPy opens it too, and any row of its tables is read by its offset, however
many there are:

``manifest.json``
    ``{"format": 2, "checksum": "xxh3-64", "name", "written", "datasets"}``; each of ``datasets`` is
    ``{"key", "shape", "dtype", "axis", "unit_rows", "member"}``.
``rows/0.npy``, … uint64
    The XXH3 of each unit of ``unit_rows`` rows of a dataset, one after the other: of the numbers as
    they are delivered, little-endian in C order, the row axis first. The last unit may be shorter.

The tables say which rows are what they were. That does not depend on the format, so it holds
for the same array in another file too, and it can be compared for just the rows that are read.

XXH3 (64 bits, seed 0, xxHash 0.8) is a hash, not a code with a proven distance: an accidental
change goes unnoticed with a probability of about 2⁻⁶⁴. CRC-32C, of which it is proven that no burst
of up to 32 bits does (Castagnoli, Bräuer and Herrmann 1993), takes three times as long on rows of
60 KB, and lets other damage pass with 2⁻³².
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.source import Source
from oocdata.errors import (
    ManifestError,
    MissingFileError,
    SourceError,
    UnsupportedDtypeError,
)
from oocdata.formats.npy import open_npz

__all__ = [
    "CHECKSUM", "FORMAT", "Manifest", "RowChecksums", "checksums_of", "manifest_path", "unit_rows",
]  # fmt: skip

CHECKSUM = "xxh3-64"

_UNIT_BYTES = 512
"""Rows smaller than this share a checksum: a table then takes at most a 64th of its array."""

FORMAT = 2
"""The form of manifests; another number is another form."""

_SUFFIX = ".manifest"


@dataclass(frozen=True, slots=True)
class RowChecksums:
    """The checksums of one dataset's rows: an entry of ``datasets``."""

    key: str | None
    shape: tuple[int, ...]  #: ``(rows, *element)``
    dtype: str  #: as delivered, in little-endian byte order, e.g. ``"<f4"``
    axis: int  #: the row axis in storage
    unit_rows: int
    member: str

    @property
    def units(self) -> int:
        """How many checksums there are.

        Examples
        --------
        >>> RowChecksums(None, (10, 3), "<f4", 0, 4, "rows/0").units
        3
        """
        return -(-self.shape[0] // self.unit_rows)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``manifest.json`` says; the tables are read when they are needed."""

    path: str  #: of the manifest
    name: str  #: the last part of the path of what it was written of
    datasets: tuple[RowChecksums, ...]

    @classmethod
    def read(cls, path: str) -> Manifest:
        """Read a manifest, without its tables; `ManifestError` if it is none or damaged."""
        if not os.path.isfile(path):
            raise MissingFileError(
                "the manifest must exist; it does not. Write it: oocdata check PATH "
                "--write-manifest.",
                path=path,
            )
        import json
        import zipfile  # not for `import oocdata`

        try:
            with zipfile.ZipFile(path) as archive:
                found = json.loads(archive.read("manifest.json"))
            if found["format"] != FORMAT or found["checksum"] != CHECKSUM:
                raise ValueError(f"it has format {found['format']!r}, {found['checksum']!r}")
            datasets = tuple(
                RowChecksums(**{**one, "shape": tuple(one["shape"])}) for one in found["datasets"]
            )
            return cls(path, found["name"], datasets)
        # What a damaged archive raises is anything: struct.error, UnicodeDecodeError, zlib.error, …
        except Exception as error:
            raise _unreadable(path, error) from error

    def check_whole(self) -> None:
        """Raise if a table is damaged, by the CRC-32 that the archive has of each."""
        import zipfile

        try:
            with zipfile.ZipFile(self.path) as archive:
                damaged = archive.testzip()
        except Exception as error:  # as of `read`
            raise _unreadable(self.path, error) from error
        if damaged is not None:
            raise _unreadable(self.path, f"its member {damaged!r} fails its CRC-32")
        for one in self.datasets:
            self.table(one.member)

    def table(self, member: str) -> Source:
        """Return a table of checksums, shape ``(n,)`` uint64, to be read row by row."""
        try:
            table = open_npz(self.path, member)
        except MissingFileError:
            raise
        except SourceError as error:
            raise _unreadable(self.path, error) from error
        if table.dtype != np.uint64 or len(table.shape) != 1:
            raise _unreadable(self.path, f"{member} holds {table.dtype} of shape {table.shape}")
        return table

    def dataset(self, key: str | None) -> RowChecksums:
        """Return the checksums of a dataset: of its key, or the only ones there are."""
        wanted = "" if key is None else key.strip("/")
        found = [one for one in self.datasets if (one.key or "").strip("/") == wanted]
        if not found and len(self.datasets) == 1 and not (wanted and self.datasets[0].key):
            return self.datasets[0]
        if not found:
            there = ", ".join(repr(one.key) for one in self.datasets[:20]) or "no dataset"
            raise ManifestError(
                f"the manifest must hold the checksums of {key!r}; it holds those of {there}. "
                "Write it anew: oocdata check PATH --write-manifest --overwrite.",
                path=self.path,
            )
        return found[0]

    def check(self, rows: RowChecksums, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise if checksums are of an array of another shape ``(rows, *element)`` or dtype."""
        if rows.shape != shape or rows.dtype != dtype.newbyteorder("<").str:
            raise ManifestError(
                f"the manifest must be of an array of shape {shape}, {dtype}; it is of "
                f"{rows.shape}, {np.dtype(rows.dtype)}, row axis {rows.axis}. It belongs to other "
                "data, or to another row axis.",
                path=self.path,
                key=rows.key,
            )


def manifest_path(target: str) -> str:
    """Return where the manifest of a file or folder lies unless one says otherwise: beside it.

    Examples
    --------
    >>> manifest_path("data/run.zarr/")
    'data/run.zarr.manifest'
    """
    if os.path.basename(target.rstrip("/")) in ("", ".", ".."):
        target = os.path.abspath(target)
    return target.rstrip("/") + _SUFFIX


def _unreadable(path: str, reason: object) -> ManifestError:
    return ManifestError(
        f"the manifest must be readable; {reason}. It is damaged or none: write it anew from data "
        "that you trust.",
        path=path,
    )


def unit_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return how many rows share a checksum: one, or as many small ones as 512 bytes take."""
    if dtype.hasobject:
        raise UnsupportedDtypeError(
            "rows must be of one length to have checksums; these are bytes of unequal length."
        )
    row_bytes = prod(shape[1:]) * dtype.itemsize
    return max(1, -(-_UNIT_BYTES // max(1, row_bytes)))


def checksums_of(rows: NDArray[Any], unit: int) -> NDArray[np.uint64]:
    """Return the checksums of rows, shape (n, *element), in either byte order.

    `unit` of them share a checksum; the last unit may be shorter.
    """
    from xxhash import xxh3_64_intdigest  # not for `import oocdata`

    checksum: Callable[[Any], int] = xxh3_64_intdigest
    count = len(rows)
    little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
    nbytes = little.nbytes // max(1, count) * unit
    if not nbytes:
        return np.full(-(-count // unit), checksum(b""), np.uint64)
    whole = little.reshape(-1).view(np.uint8)
    full = count // unit
    # Rows of an array come out of its iterator in C; slicing it takes twice as long as the hash.
    units = whole[: full * nbytes].reshape(full, nbytes)
    found = np.fromiter(map(checksum, units), np.uint64, full)
    if full * unit < count:
        found = np.append(found, np.uint64(checksum(whole[full * nbytes :])))
    return found
