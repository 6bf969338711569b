"""Pad rows of unequal length to one length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.prefetch import Fetch
from oocdata.engines.ragged import run_positions
from oocdata.engines.ragged_rows import LocatedRows, RaggedRows, inner_shape, locate
from oocdata.engines.source import Source, Storage, WithStorage
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

__all__ = ["DerivedRows", "PaddedRows", "RowLengths", "RowMask", "derived_storage", "padding_value"]

Ints = NDArray[np.int64]

_PIECE = 4 << 20
"""Bytes that are read and padded at a time, unless a row is larger."""


def padding_value(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a padding value as a scalar of a dtype.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the dtype can't represent it.

    Examples
    --------
    >>> padding_value("value", 7, np.dtype("f4"))
    7.0
    """
    with np.errstate(all="ignore"):
        try:
            converted = np.array(value).astype(dtype)
            same = bool(converted == value) or (converted != converted and value != value)
            same &= bool(np.isfinite(converted) == np.isfinite(value))
        except (TypeError, ValueError, OverflowError):
            same = False
    if not same:
        raise ArgumentError(f"`{name}` must be a number that {dtype} holds; got {value!r}.")
    return converted.item()


@dataclass(frozen=True, eq=False)
class DerivedRows:
    """A source derived from the rows of another source.

    Attributes
    ----------
    rows : Source
        In this module, a source for which `oocdata.engines.ragged_rows.is_ragged` holds.
    """

    rows: Source

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the rows."""
        return self.rows.shape

    @property
    def row_source(self) -> Source:
        """The source that identifies the rows: no two parts of a split share a row of it."""
        return self.rows


@dataclass(frozen=True, eq=False)
class PaddedRows(WithStorage, DerivedRows):
    """Rows of unequal length, padded or cut to one length; a `Source`.

    Attributes
    ----------
    length : int
        Length of the rows as delivered; longer rows are cut.
    value : number
        Value of the padding.
    """

    length: int
    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, length, …)``."""
        return (*self.rows.shape, self.length, *inner_shape(self.rows))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.rows.dtype

    @cached_property
    def _storage(self) -> Storage:
        """How the rows are stored."""
        stored = self.rows.storage()
        return replace(
            stored,
            reading=f"{stored.reading}; filled up to {self.length}",
            opened=None,
            chunks=stored.chunks and (*stored.chunks, *(max(1, n) for n in self.shape[1:])),
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        box_bytes = max(1, out[0].size * self.dtype.itemsize)
        step = max(1, _PIECE // box_bytes)
        for start in range(0, len(origins), step):
            self._read(origins[start : start + step], extent, out[start : start + step])

    def _read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Read boxes that fit into memory together."""
        (rows_of, width, *inner), (_, step, *steps) = extent.lengths, extent.strides
        located, first, counts, spans = self._runs(origins, extent)
        numbers = empty((int(spans.sum()), *self.shape[2:]), self.dtype)
        located.read(first, spans, numbers, np.cumsum(spans) - spans)
        stored = np.arange(width) < counts[:, None]
        if step > 1 or numbers.shape[1:] != (*inner,):
            boxes = np.empty((int(counts.sum()), numbers.ndim), np.int64)
            boxes[:, 0] = np.repeat(np.cumsum(spans) - spans, counts)
            boxes[:, 0] += run_positions(np.zeros_like(counts), counts) * step
            boxes[:, 1:] = np.repeat(origins[:, 2:], rows_of, axis=0)[np.nonzero(stored)[0]]
            unpadded = MemoryArray(numbers)
            numbers = np.empty((len(boxes), *inner), self.dtype)
            unpadded.read(boxes, Extent((1, *inner), (1, *steps)), numbers[:, None])
        padded = np.full((len(counts), width, *inner), self.value, self.dtype)
        padded[stored] = numbers
        out[...] = padded.reshape(out.shape)

    def fetches(self, origins: Ints, extent: Extent) -> list[Fetch]:
        """Return the fetches that reading boxes needs; reads the lengths of rows."""
        located, first, _, spans = self._runs(origins, extent)
        return located.fetches(first, spans)

    def _runs(self, origins: Ints, extent: Extent) -> tuple[LocatedRows, Ints, Ints, Ints]:
        """Return the rows of boxes, and first position, count and span of the run read of each."""
        (rows_of, width), (row_step, step) = extent.lengths[:2], extent.strides[:2]
        rows = (origins[:, :1] + np.arange(rows_of) * row_step).ravel()
        located = locate(self.rows, rows)
        first = np.repeat(origins[:, 1], rows_of)
        remaining = np.minimum(located.lengths, self.length) - first
        counts = np.clip(-(-remaining // step), 0, width)
        return located, first, counts, np.where(counts > 0, (counts - 1) * step + 1, 0)


@dataclass(frozen=True, eq=False)
class RowLengths(DerivedRows):
    """Length of each row; a `Source` of int64."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    def storage(self) -> Storage:
        """Return the storage of the offsets, or of the rows."""
        return derived_storage(self.rows, "lengths of rows")

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size:
            rows = (origins + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
            out[...] = locate(self.rows, rows).lengths.reshape(out.shape)


@dataclass(frozen=True, eq=False)
class RowMask(DerivedRows):
    """Mask of stored elements of padded rows; a `Source` of bool.

    Attributes
    ----------
    length : int
    """

    length: int

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.bool_)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, length)``."""
        return (*self.rows.shape, self.length)

    def storage(self) -> Storage:
        """Return the storage of the offsets, or of the rows."""
        return derived_storage(self.rows, "where rows hold values")

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size:
            rows = (origins[:, :1] + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
            lengths = locate(self.rows, rows).lengths.reshape(len(origins), -1)
            places = origins[:, 1:] + np.arange(extent.lengths[1]) * extent.strides[1]
            out[...] = places[:, None] < lengths[..., None]


def derived_storage(rows: Source, layout: str) -> Storage:
    """Return the storage description of an array derived from rows without their values."""
    source = rows.offsets if isinstance(rows, RaggedRows) else rows
    return replace(source.storage(), layout=layout, strides=None, opened=None, chunks=None)
