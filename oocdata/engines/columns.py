"""Some columns of sparse rows, and sparse rows as they are stored: of one file or several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.concat import Concat
from oocdata.engines.source import Source, Storage
from oocdata.engines.sparse import Entries, SparseRows
from oocdata.engines.wrapped import Wrapped
from oocdata.errors import ArgumentError

__all__ = ["Columns", "choose_columns", "chosen_columns", "is_sparse", "read_entries"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Columns(Wrapped):
    """Some columns of sparse rows, of one file or of several end to end.

    Attributes
    ----------
    places : ndarray of int64, shape (columns,)
        Which columns of the source, each once, in order.
    """

    places: Ints

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, columns)``."""
        return self.inner.shape

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return replace(self.inner.storage(), opened=None)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self.inner.read(origins, extent, out)

    @cached_property
    def inner(self) -> Source:
        """The source that has these columns alone."""
        return _with_columns(self.source, self.places)


def is_sparse(source: Source) -> bool:
    """Return whether a source has `read_entries`."""
    if isinstance(source, Concat):
        return source.axis == 0 and all(map(is_sparse, source.parts))
    return isinstance(source, SparseRows | Columns)


def _with_columns(source: Source, places: Ints) -> Source:
    """Return the source of some columns."""
    if isinstance(source, SparseRows):
        return source.with_columns(places)
    assert isinstance(source, Concat)
    return source.with_parts([_with_columns(part, places) for part in source.parts])


def read_entries(source: Source, origins: Ints, extent: Extent) -> Entries:
    """Return the stored numbers of rows, or of parts of rows.

    Parameters
    ----------
    source : Source
        For which `is_sparse` holds.
    origins : ndarray of int64, shape (n, 2)
    extent : Extent
        Of length 1 along axis 0.

    Raises
    ------
    oocdata.errors.SourceError
        When storage can't deliver them.
    """
    if isinstance(source, Columns):
        return read_entries(source.inner, origins, extent)
    width = extent.lengths[1]
    if isinstance(source, SparseRows):
        return _joined(list(source.boxes(origins, extent)), source.dtype, width)
    assert isinstance(source, Concat)
    parts = []
    for part, boxes, moved in source.shares(origins):
        found = read_entries(part, moved, extent)
        rows, columns = found.rows_and_columns()
        parts.append(Entries(boxes[rows] * width + columns, found.values, width))
    found = _joined(parts, source.dtype, width)
    order = np.argsort(found.places, kind="stable")
    return Entries(found.places[order], found.values[order], width)


def _joined(parts: list[Entries], dtype: np.dtype[Any], width: int) -> Entries:
    """Return entries one after the other."""
    if len(parts) == 1:
        return parts[0]
    places = np.concatenate([np.empty(0, np.int64), *(part.places for part in parts)])
    values = np.concatenate([np.empty(0, dtype), *(part.values for part in parts)])
    return Entries(places, values, width)


def choose_columns(source: Source, axis: int, places: Ints) -> Source | None:
    """Return the source of some columns of sparse rows; None where `source` has other rows.

    Raises
    ------
    oocdata.errors.ArgumentError
        If a column is chosen twice.
    """
    if axis != 1 or not is_sparse(source):
        return None
    if len(np.unique(places)) < len(places):
        raise ArgumentError(
            "columns of sparse rows must be chosen once each; got some more often. Repeat them in "
            "`.map`."
        )
    whole, before = chosen_columns(source) or (source, np.arange(source.shape[1]))
    return Columns(whole, before[places])


def chosen_columns(source: Source) -> tuple[Source, Ints] | None:
    """Return the source with all its columns, and those chosen; None where all are there."""
    return (source.source, source.places) if isinstance(source, Columns) else None
