"""Compare rows with their checksums as they are read: no wrong number is delivered."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError, ChecksumError, ManifestError, concerning
from oocdata.formats.manifest import Manifest, checksums_of, manifest_path
from oocdata.formats.stored import is_url

__all__ = ["Verified", "manifest_of", "verified"]

_SCRATCH_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Verified(Wrapped):
    """A source whose rows are compared with their checksums whenever they are read.

    A box that is part of a row, or delivered in another dtype, is taken from the whole row.
    """

    axis: int  #: along which the manifest numbers rows
    checksums: Source  #: of each unit of rows, shape ``(units,)`` uint64
    unit_rows: int  #: to a checksum; where several share one, all of them are read
    manifest: str  #: the file of the checksums

    def storage(self) -> Storage:
        """Return how the array is stored."""
        inner = self.source.storage()
        opened = None if inner.opened is None else {**inner.opened, "verify": self.manifest}
        reading = f"{inner.reading}; verified: whole rows, each by its checksum"
        return replace(inner, reading=reading, strides=None, opened=opened)

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; rows are compared first."""
        if out.size == 0:
            return
        axis, unit = self.axis, self.unit_rows
        if unit == 1 and out.dtype == self.dtype and extent == self._whole:
            self.source.read(origins, extent, out)
            self._compare(origins[:, axis], checksums_of(np.moveaxis(out, 1 + axis, 1), 1))
            return
        rows = origins[:, axis, None] + extent.strides[axis] * np.arange(extent.lengths[axis])
        units, which = np.unique(rows // unit, return_inverse=True)
        which = which.reshape(rows.shape)
        part, target = extent.with_axis(axis, 1), np.moveaxis(out, 1 + axis, 1)
        step = max(1, _SCRATCH_BYTES // (unit * prod(self._row) * self.dtype.itemsize))
        for start in range(0, len(units), step):
            whole = self._read_units(units[start : start + step])
            boxes, points = np.nonzero((which >= start) & (which < start + step))
            places = origins[boxes]
            places[:, axis] = (which[boxes, points] - start) * unit + rows[boxes, points] % unit
            found = np.empty((len(places), *part.lengths), self.dtype)
            MemoryArray(whole).read(places, part, found)
            target[boxes, points] = np.moveaxis(found, 1 + axis, 1)[:, 0]

    @property
    def _whole(self) -> Extent:
        """The extent of a whole row."""
        return Extent.of(self.shape).with_axis(self.axis, 1)

    @property
    def _row(self) -> tuple[int, ...]:
        return (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def _read_units(self, units: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of ascending units, all but the array's last with as many rows."""
        rows = (units[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()
        rows = rows[: np.searchsorted(rows, self.shape[self.axis])]
        whole = np.empty((len(rows), *self._row), self.dtype)
        origins = np.zeros((len(rows), len(self.shape)), np.int64)
        origins[:, self.axis] = rows
        self.source.read(origins, self._whole, np.expand_dims(whole, 1 + self.axis))
        self._compare(units, checksums_of(whole, self.unit_rows))
        return np.moveaxis(whole, 0, self.axis)

    def _compare(self, units: NDArray[np.int64], found: NDArray[np.uint64]) -> None:
        expected = np.empty((len(units), 1), np.uint64)
        self.checksums.read(units[:, None], Extent.of((1,)), expected)
        wrong = np.unique(units[found != expected[:, 0]])
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
    """Return a source that compares every row with the manifest of a path.

    If `path`, which was opened, is what the manifest was written for, rows are compared along the
    axis that it was written for; those of another file along `axis`.
    """
    storage = source.storage()
    known = Manifest.read(os.path.abspath(manifest))
    rows = known.dataset(storage.key)
    if path is not None and os.path.basename(path.rstrip("/")) == known.name:
        axis = rows.axis % max(1, len(rows.shape))
    shape = source.shape
    front = (*shape[axis : axis + 1], *shape[:axis], *shape[axis + 1 :])
    with concerning(known.path, rows.key):
        known.check(rows, front, source.dtype)
        table = known.table(rows.member)
        if table.shape != (rows.units,):
            raise ManifestError(
                f"the manifest must hold {rows.units} checksums; it holds {table.shape[0]}. Write "
                "it anew from data that you trust."
            )
    return Verified(source, axis, table, rows.unit_rows, known.path)


def manifest_of(verify: object, path: str | None, name: str = "verify") -> str | None:
    """Return the manifest that `verify` means; None for no verification.

    `path` is what is opened; None for an object, which has nothing beside it. `name` is that of the
    argument, for messages.

    Examples
    --------
    >>> manifest_of(True, "a.npy"), manifest_of("b.manifest", "a.npy"), manifest_of(False, "a.npy")
    ('a.npy.manifest', 'b.manifest', None)
    """
    if verify is None or verify is False:
        return None
    if isinstance(verify, str | os.PathLike):
        if is_url(os.fspath(verify)):
            raise ArgumentError(
                f"`{name}` must be the path of a manifest on a disk; got {os.fspath(verify)!r}. "
                "Copy the manifest to a disk."
            )
        return os.path.expanduser(os.fspath(verify))
    if verify is not True:
        raise ArgumentError(f"`{name}` must be True or the path of a manifest; got {verify!r}.")
    if path is None or "://" in path:
        what = "an object" if path is None else "a URL"
        raise ArgumentError(
            f"`{name}` must be the path of a manifest for {what}; got True. Manifests lie on disks."
        )
    return manifest_path(path)
