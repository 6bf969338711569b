"""Boxes of a DataArray, read through xarray: computed ones, dask, any backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.memory import ObjectReader
from oocdata.sources.source import Annotations, Layout
from oocdata.sources.xarray.annotations import annotations_of

__all__ = ["VariableReader"]


@dataclass(frozen=True, eq=False)
class VariableReader:
    """Boxes of an ``xarray.Variable``, under xarray's own locks.

    Parameters
    ----------
    variable : xarray.Variable
        Without the coordinates, which nothing here needs. Pickled as xarray pickles it: what is
        lazy, by the path of its file.
    """

    variable: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """As the variable says."""
        return tuple(int(length) for length in self.variable.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        native: np.dtype[Any] = np.dtype(self.variable.dtype).newbyteorder("=")
        return native

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The largest chunk of dask, or the chunk in storage; else ones."""
        chunks: Any = self.variable.chunks
        if chunks is not None:
            return tuple(max(1, *lengths) for lengths in chunks)
        stored = self.variable.encoding.get("preferred_chunks")
        if not isinstance(stored, Mapping):
            return (1,) * len(self.shape)
        wanted = [stored.get(name, 1) for name in self.variable.dims]
        return tuple(max(1, min(n, most)) for n, most in zip(wanted, self.shape, strict=True))

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box; nothing of it stays in xarray's cache."""
        return ObjectReader(self.variable).read_box(box)

    def annotations(self) -> Annotations:
        """Return the attributes of the values that it shows."""
        return annotations_of(self.variable)

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        dask = self.variable.chunks is not None
        chunks = f"chunks of {self.chunk_shape}" if max(self.chunk_shape, default=1) > 1 else ""
        how = "through xarray"
        if dask:
            how += (
                " and dask, chunk by chunk; an array of one netCDF4 file or Zarr store is read "
                "without them if xarray opens it with chunks=None"
            )
        source = self.variable.encoding.get("source")
        return Layout(
            format="xarray, computed by dask" if dask else "xarray",
            path=source if isinstance(source, str) else None,
            key=None,
            storage=chunks or "unknown",
            codec="unknown",
            stored_bytes=None,
            reading=how,
            dimensions=tuple(map(str, self.variable.dims)),
        )
