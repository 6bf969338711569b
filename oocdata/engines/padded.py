"""Rows of unequal length as rows of one length: what is missing is filled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.ragged import concerned_rows, read_bounds, read_ragged
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError

__all__ = ["PaddedRows", "RowLengths", "RowMask"]

Ints = NDArray[np.int64]

_PIECE = 4 << 20
"""Bytes that are made at a time, unless a row is larger."""


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Rows that lie one after the other, each filled up to one length; a `Source`.

    Attributes
    ----------
    values : Source
        Shape (n, …): what all rows hold.
    offsets : Source
        int64, of one axis: where each row begins in `values`, and where the last one ends.
    length : int
        Of the rows as delivered: what is beyond is left out.
    value : number
        What is missing reads as.
    """

    values: Source
    offsets: Source
    length: int
    value: Any

    @property
    def row_source(self) -> Source:
        """Whose rows these are, however they are padded: no two parts of a split share one."""
        return self.offsets

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, length, …)``."""
        return (self.offsets.shape[0] - 1, self.length, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the values."""
        return self.values.dtype

    def storage(self) -> Storage:
        """Return how the values are stored; chunks are as many rows as one holds on average."""
        return self._storage

    @cached_property
    def _storage(self) -> Storage:
        values, offsets = self.values.storage(), self.offsets.storage()
        found = replace(
            values,
            layout=f"rows of unequal length in {values.layout}",
            reading=f"{values.reading}; filled up to {self.length}",
            strides=None,
            stored_bytes=values.stored_bytes,
            parts=(0,),
            part_names=(),
            episodes=False,
            dimensions=(),
            files=tuple(dict.fromkeys((*values.files, *offsets.files))),
            opened=None,
            table_bytes=values.table_bytes + offsets.table_bytes,
        )
        rows, stored = self.shape[0], self.values.shape[0]
        if values.chunks is None or not rows or not stored:
            return replace(found, chunks=None)
        # Rows are of unlike lengths, so this is so on average.
        together = min(rows, max(1, round(values.chunks[0] * rows / stored)))
        nbytes = values.chunk_bytes
        if nbytes is None:
            lengths = map(min, values.chunks, self.values.shape)
            nbytes = int(np.prod(list(lengths))) * self.dtype.itemsize
        chunks = (together, self.length, *self.values.shape[1:])
        return replace(found, chunks=tuple(max(1, n) for n in chunks), chunk_bytes=nbytes)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        each = max(1, out[0].size * self.dtype.itemsize)
        some = max(1, _PIECE // each)
        for start in range(0, len(origins), some):
            self._read(origins[start : start + some], extent, out[start : start + some])

    def _read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Read boxes that fit into memory together."""
        (rows_of, width, *inner), (row_step, step, *steps) = extent.lengths, extent.strides
        rows = (origins[:, :1] + np.arange(rows_of) * row_step).ravel()
        try:
            starts, stops = read_bounds(self.offsets, rows, self.values.shape[0])
        except SourceError as error:
            storage = self.values.storage()
            error.path, error.key = storage.path, storage.key
            raise
        first = np.repeat(origins[:, 1], rows_of)
        left = np.minimum(stops - starts, self.length) - first
        counts = np.clip(-(-left // step), 0, width)
        held = np.arange(width) < counts[:, None]
        found = np.full((len(rows), width, *inner), self.value, self.dtype)
        try:
            if step == 1 and not inner:
                numbers = np.empty(int(counts.sum()), self.dtype)
                read_ragged(self.values, starts + first, counts, numbers)
            else:
                places = (starts + first)[:, None] + np.arange(width) * step
                boxes = np.empty((int(counts.sum()), len(self.values.shape)), np.int64)
                boxes[:, 0] = places[held]
                boxes[:, 1:] = np.repeat(origins[:, 2:], rows_of, axis=0)[np.nonzero(held)[0]]
                numbers = np.empty((len(boxes), 1, *inner), self.dtype)
                if len(boxes):
                    self.values.read(boxes, Extent((1, *inner), (1, *steps)), numbers)
                numbers = numbers[:, 0]
        except SourceError as error:
            error.concern(concerned_rows(error, rows, starts, stops))
            raise
        found[held] = numbers
        out[...] = found.reshape(out.shape)


@dataclass(frozen=True, eq=False)
class RowLengths:
    """How long each row is; a `Source` of int64.

    Attributes
    ----------
    offsets : Source
    most : int
        Where the last row may end.
    """

    offsets: Source
    most: int

    @property
    def row_source(self) -> Source:
        """Whose rows these are, however they are padded: no two parts of a split share one."""
        return self.offsets

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows,)``."""
        return (self.offsets.shape[0] - 1,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    def storage(self) -> Storage:
        """Return how the offsets are stored."""
        return replace(
            self.offsets.storage(), layout="lengths of rows", strides=None, opened=None, chunks=None
        )

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size:
            rows = (origins + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
            starts, stops = read_bounds(self.offsets, rows, self.most)
            out[...] = (stops - starts).reshape(out.shape)


@dataclass(frozen=True, eq=False)
class RowMask:
    """Where padded rows hold values; a `Source` of bool.

    Attributes
    ----------
    lengths : RowLengths
    length : int
    """

    lengths: RowLengths
    length: int

    @property
    def row_source(self) -> Source:
        """Whose rows these are, however they are padded: no two parts of a split share one."""
        return self.lengths.offsets

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, length)``."""
        return (*self.lengths.shape, self.length)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of bools."""
        return np.dtype(np.bool_)

    def storage(self) -> Storage:
        """Return how the offsets are stored."""
        return replace(self.lengths.storage(), layout="where rows hold values")

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size:
            lengths = np.empty((len(origins), extent.lengths[0]), np.int64)
            rows = Extent(extent.lengths[:1], extent.strides[:1])
            self.lengths.read(origins[:, :1], rows, lengths)
            places = origins[:, 1:] + np.arange(extent.lengths[1]) * extent.strides[1]
            out[...] = places[:, None] < lengths[..., None]
