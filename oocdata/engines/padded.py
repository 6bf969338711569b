"""Pad rows of unequal length to one length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_rows
from oocdata.engines.buffers import empty
from oocdata.engines.copying import copy_boxes
from oocdata.engines.dtypes import can_hold
from oocdata.engines.ragged_rows import LocatedRows, inner_shape, locate
from oocdata.engines.source import Boxes, Source, Storage, WithStorage
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property

_PIECE = 4 << 20
"""Bytes that are read and padded at a time, unless a row is larger."""


def padding_value(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a padding value as a scalar of a dtype, or raise; for text, 0 means empty text."""
    is_text = dtype.kind in "SU"
    if is_text and isinstance(value, int | float) and value == 0:
        value = dtype.type()
    try:
        fits = np.array(value).astype(dtype) == value if is_text else can_hold(dtype, value)
    except ValueError:  # text that is not ASCII
        fits = False
    if not fits:
        kind = "text" if is_text else "a number"
        raise ArgumentError(f"`{name}` must be {kind} that {dtype} holds; got {value!r}.")
    return np.array(value).astype(dtype).item()


@dataclass(frozen=True, eq=False)
class DerivedRows:
    """A source derived from the rows of another source."""

    rows: Source

    _layout: ClassVar[str]
    """Layout of a source that is derived without the values of the rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def storage(self) -> Storage:
        """Return the storage of the offsets, or of the rows, without that of their values."""
        stored = getattr(self.rows, "offsets", self.rows).storage()
        none: Any = dict.fromkeys(("strides", "chunks", "opened"))
        return replace(stored, layout=self._layout, packed="", unit="", **none)

    @property
    def row_source(self) -> Source:
        return self.rows


@dataclass(frozen=True, eq=False)
class PaddedRows(WithStorage, DerivedRows):
    """Rows of unequal length, padded with `value` or cut to one `length`; a `Source`."""

    length: int
    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.rows.shape, self.length, *inner_shape(self.rows))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.rows.dtype

    @cached_property
    def _storage(self) -> Storage:
        stored = self.rows.storage()
        return replace(
            stored,
            reading=f"{stored.reading}; filled up to {self.length}",
            opened=None,
            chunks=stored.chunks and (*stored.chunks, *(max(1, n) for n in self.shape[1:])),
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        values = extent.lengths[0] * extent.spans[1] * prod(self.shape[2:])
        step = max(1, _PIECE // max(1, values * self.dtype.itemsize))
        for start in range(0, len(origins), step):
            self._read(origins[start : start + step], extent, out[start : start + step])

    def _read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Read boxes that fit into memory together."""
        located, firsts, counts = self._runs(origins, extent)
        span, inner = extent.spans[1], self.shape[2:]
        padded = empty((len(counts) * span, *inner), self.dtype)
        padded[...] = self.value
        located.read(firsts, counts, padded, np.arange(len(counts)) * span)
        within = origins.copy()
        within[:, :2] = 0
        boxes = padded.reshape(len(origins), extent.lengths[0], span, *inner)
        copy_boxes(boxes, within, Extent(extent.lengths, (1, *extent.strides[1:])), out)

    def read_boxes(self, origins: Ints, extent: Extent) -> Iterable[Boxes]:
        located, firsts, counts = self._runs(origins, extent)
        return located.boxes(firsts, counts)

    def _runs(self, origins: Ints, extent: Extent) -> tuple[LocatedRows, Ints, Ints]:
        """Return the rows of boxes, and first position and length of the run read of each."""
        located = _located(self.rows, origins, extent)
        firsts = np.repeat(origins[:, 1], extent.lengths[0])
        remaining = np.minimum(located.lengths, self.length) - firsts
        return located, firsts, np.clip(remaining, 0, extent.spans[1])


@dataclass(frozen=True, eq=False)
class RowLengths(DerivedRows):
    """Length of each row; a `Source` of int64."""

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    _layout: ClassVar[str] = "lengths of rows"

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size:
            located = _located(self.rows, origins, extent)
            out[...] = located.lengths.reshape(out.shape)


@dataclass(frozen=True, eq=False)
class RowMask(DerivedRows):
    """Mask of stored elements of rows padded to a `length`; a `Source` of bool."""

    length: int

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.bool_)
    value: ClassVar[None] = None
    """No padding value."""

    _layout: ClassVar[str] = "where rows hold values"

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.rows.shape, self.length)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size:
            lengths = _located(self.rows, origins, extent).lengths.reshape(len(origins), -1)
            places = origins[:, 1:] + np.arange(extent.lengths[1]) * extent.strides[1]
            out[...] = places[:, None] < lengths[..., None]


def _located(source: Source, origins: Ints, extent: Extent) -> LocatedRows:
    """Locate the rows of boxes, those of each box in order."""
    rows = covered_rows(origins, extent)
    return locate((source, rows, np.arange(len(rows))))
