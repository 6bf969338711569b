"""Verify rows against the checksums of a manifest whenever they are read."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError, ChecksumError, error_location
from oocdata.formats.manifest import Manifest, checksums_of, manifest_path
from oocdata.formats.paths import is_url
from oocdata.index import as_path

_SCRATCH_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Verified(Wrapped):
    """A source that verifies every row that it reads.

    For a part of a row, or another dtype, the whole row is read and verified.
    """

    axis: int  #: the row axis of the manifest
    checksums: Source  #: one per unit of rows, shape ``(units,)`` uint64
    unit_rows: int  #: rows per checksum, which are all read to verify one of them
    manifest: str  #: path of the manifest

    def storage(self) -> Storage:
        """Return how the array is stored."""
        inner = self.source.storage()
        opened = None if inner.opened is None else {**inner.opened, "verify": self.manifest}
        reading = f"{inner.reading}; verified: whole rows, each by its checksum"
        return replace(inner, reading=reading, strides=None, opened=opened)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]`` after verifying its rows."""
        if out.size == 0:
            return
        axis, unit = self.axis, self.unit_rows
        # Rows of 8 KB take 1 / 2 of the processor's time so, by NumPy iteration.
        if unit == 1 and out.dtype == self.dtype and extent == self._whole:
            self.source.read(origins, extent, out)
            self._compare(origins[:, axis], checksums_of(np.moveaxis(out, 1 + axis, 1), 1))
            return
        rows = origins[:, axis, None] + extent.strides[axis] * np.arange(extent.lengths[axis])
        units, unit_of = np.unique(rows // unit, return_inverse=True)
        unit_of = unit_of.reshape(rows.shape)
        part, target = extent.with_axis(axis, 1), np.moveaxis(out, 1 + axis, 1)
        step = max(1, _SCRATCH_BYTES // (unit * prod(self._row) * self.dtype.itemsize))
        for start in range(0, len(units), step):
            scratch = self._read_units(units[start : start + step])
            boxes, points = np.nonzero((unit_of >= start) & (unit_of < start + step))
            scratch_origins = origins[boxes]
            within_unit = rows[boxes, points] % unit
            scratch_origins[:, axis] = (unit_of[boxes, points] - start) * unit + within_unit
            parts = np.empty((len(scratch_origins), *part.lengths), self.dtype)
            MemoryArray(scratch).read(scratch_origins, part, parts)
            target[boxes, points] = np.moveaxis(parts, 1 + axis, 1)[:, 0]

    @property
    def _whole(self) -> Extent:
        return Extent.of(self.shape).with_axis(self.axis, 1)

    @property
    def _row(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def _read_units(self, units: Ints) -> NDArray[Any]:
        rows = (units[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()
        rows = rows[: np.searchsorted(rows, self.shape[self.axis])]
        found = np.empty((len(rows), *self._row), self.dtype)
        origins = np.zeros((len(rows), len(self.shape)), np.int64)
        origins[:, self.axis] = rows
        self.source.read(origins, self._whole, np.expand_dims(found, 1 + self.axis))
        self._compare(units, checksums_of(found, self.unit_rows))
        return np.moveaxis(found, 0, self.axis)

    def _compare(self, units: Ints, computed: NDArray[np.uint64]) -> None:
        expected = np.empty((len(units), 1), np.uint64)
        self.checksums.read(units[:, None], Extent.of((1,)), expected)
        wrong = np.unique(units[computed != expected[:, 0]])
        if not len(wrong):
            return
        rows = (wrong[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()
        storage = self.source.storage()
        raise ChecksumError(
            f"every row must be what its checksum in '{self.manifest}' was made of; these are not. "
            "Their bytes, or the manifest's, were changed or damaged since it was written: "
            "oocdata check PATH --manifest says which.",
            path=storage.path,
            key=storage.key,
            rows=rows[rows < self.shape[self.axis]],
        )


def verified(source: Source, manifest: str, *, path: str | None = None, axis: int = 0) -> Source:
    """Return a source that verifies every row against the manifest at the path `manifest`.

    The row axis is that of the manifest if it was written for the opened `path`, else `axis`.
    """
    known = Manifest.read(os.path.abspath(manifest))
    rows = known.dataset(source.storage().key)
    if path is not None and os.path.basename(path.rstrip("/")) == known.name:
        axis = rows.axis % max(1, len(rows.shape))
    shape = source.shape
    front = (*shape[axis : axis + 1], *shape[:axis], *shape[axis + 1 :])
    with error_location(known.path, rows.key):
        known.check(rows, front, source.dtype)
        table = known.table(rows.member)
    return Verified(source, axis, table, rows.unit_rows, known.path)


def manifest_of(verify: object, path: str | None, name: str = "verify") -> str | None:
    """Return the path of the manifest for an argument `verify`; None for no verification.

    `path` is that of the opened file, or None for an object. `name` is the argument's name in
    messages.
    """
    if verify is None or verify is False:
        return None
    if isinstance(verify, str | os.PathLike):
        return as_path(name, verify)
    if verify is not True:
        raise ArgumentError(f"`{name}` must be True or the path of a manifest; got {verify!r}.")
    if path is None or is_url(path):
        what = "an object" if path is None else "a URL"
        raise ArgumentError(f"`{name}` must be the path of a manifest for {what}; got True.")
    return manifest_path(path)
