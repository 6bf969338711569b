"""Rows compared with their checksums as they are read: no wrong number is delivered."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, ChecksumError, ManifestError
from oocdata.sources.adapt import Wrapper, layout_of
from oocdata.sources.checksums import checksums_of
from oocdata.sources.concat import Concat
from oocdata.sources.manifest import Manifest, manifest_path
from oocdata.sources.source import Layout, Source

__all__ = ["Verified", "manifest_of", "verified"]

_SCRATCH_BYTES = 1 << 20


@dataclass(frozen=True)
class Verified(Wrapper):
    """A source whose rows are compared with their checksums whenever they are read.

    Always whole rows, in their own dtype: cuts and conversions come after.

    Attributes
    ----------
    source : Source
    checksums : Source
        Of each unit of rows, shape ``(units,)`` uint64.
    unit_rows : int
        Rows to a checksum; where several share one, all of them are read.
    manifest : str
        The file of the checksums, for messages.
    """

    source: Source
    checksums: Source
    unit_rows: int
    manifest: str

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.source.dtype

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        layout = layout_of(self.source)
        return replace(
            layout, reading=f"{layout.reading}; verified: whole rows, each by its checksum"
        )

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``, after every one was found to be what it must be.

        Raises
        ------
        oocdata.errors.ChecksumError
            With the rows that are not.
        """
        if out.size == 0:
            return
        if self.unit_rows == 1:
            self.source.read_into(rows, out)
            self._compare(rows, checksums_of(out, 1))
            return
        units, which = np.unique(rows // self.unit_rows, return_inverse=True)
        within = rows % self.unit_rows
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        step = max(1, _SCRATCH_BYTES // (self.unit_rows * row_bytes))
        for start in range(0, len(units), step):
            some = units[start : start + step]
            whole = self._read_units(some)
            if step >= len(units):
                np.take(whole, which * self.unit_rows + within, axis=0, out=out, mode="clip")
                return
            places = np.flatnonzero((which >= start) & (which < start + len(some)))
            out[places] = whole[(which[places] - start) * self.unit_rows + within[places]]

    def _read_units(self, units: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of ascending units, all but the array's last with as many rows."""
        wanted = (units[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()
        wanted = wanted[: np.searchsorted(wanted, self.shape[0])]
        whole = np.empty((len(wanted), *self.shape[1:]), self.dtype)
        self.source.read_into(wanted, whole)
        self._compare(units, checksums_of(whole, self.unit_rows))
        return whole

    def _compare(self, units: NDArray[np.int64], found: NDArray[np.uint64]) -> None:
        expected = np.empty(len(units), np.uint64)
        self.checksums.read_into(units, expected)
        if np.array_equal(found, expected):
            return
        wrong = np.unique(units[found != expected])
        rows = (wrong[:, None] * self.unit_rows + np.arange(self.unit_rows)).ravel()
        layout = layout_of(self.source)
        raise ChecksumError(
            f"every row must be what its checksum in '{self.manifest}' was made of; these are not. "
            "Their bytes, or the manifest's, were changed or damaged since it was written: "
            "oocdata check PATH --manifest says which.",
            path=layout.path,
            key=layout.key,
            rows=rows[rows < self.shape[0]],
        )


def verified(source: Source, manifest: str, *, path: str | None = None, axis: int = 0) -> Source:
    """Return a source that compares every row with a manifest.

    Parameters
    ----------
    source : Source
    manifest : str
        The manifest's path.
    path : str, optional
        What was opened, to notice another row axis than that of its manifest.
    axis : int
        The row axis.

    Raises
    ------
    oocdata.errors.MissingFileError, oocdata.errors.ManifestError
        If there is no such manifest, or it is damaged, or of other data.
    oocdata.errors.ArgumentError
        If the source is several files.
    """
    if isinstance(source, Concat):
        raise ArgumentError(
            f"`verify` must be True for several files, each with its manifest beside it; got "
            f"{manifest!r}."
        )
    known = Manifest.read(os.path.abspath(manifest))
    rows = known.rows_of(layout_of(source).key, source.shape, source.dtype)
    same_file = path is not None and os.path.basename(path.rstrip("/")) == known.name
    if same_file and axis not in (rows.axis, rows.axis - len(rows.shape)):
        raise ManifestError(
            f"`axis` must be {rows.axis}, the row axis that the manifest was written for; got "
            f"{axis}.",
            path=known.path,
            key=rows.key,
        )
    table = known.table(rows.member)
    if table.shape != (rows.units,):
        raise ManifestError(
            f"the manifest must hold {rows.units} checksums; it holds {table.shape[0]}. Write it "
            "anew from data that you trust.",
            path=known.path,
            key=rows.key,
        )
    return Verified(source, table, rows.unit_rows, known.path)


def manifest_of(verify: object, path: str | None, name: str = "verify") -> str | None:
    """Return the manifest that `verify` means; None for no verification.

    Parameters
    ----------
    verify : bool, str, path or None
    path : str or None
        What is opened; None for an object, which has nothing beside it.
    name : str
        Of the argument, for messages.

    Raises
    ------
    oocdata.errors.ArgumentError

    Examples
    --------
    >>> manifest_of(True, "a.npy"), manifest_of("b.manifest", "a.npy"), manifest_of(False, "a.npy")
    ('a.npy.manifest', 'b.manifest', None)
    """
    if verify is None or verify is False:
        return None
    if isinstance(verify, str | os.PathLike):
        return os.path.expanduser(os.fspath(verify))
    if verify is not True:
        raise ArgumentError(f"`{name}` must be True or the path of a manifest; got {verify!r}.")
    if path is None or "://" in path:
        what = "an object" if path is None else "a URL"
        raise ArgumentError(f"`{name}` must be the path of a manifest for {what}; got True.")
    return manifest_path(path)
