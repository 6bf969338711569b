"""Cuts and conversions for any source: its own way where it has one, a scratch block where not."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from oocdata.errors import ArgumentError
from oocdata.index import Cut, Selection, as_slice, cut_shape, take
from oocdata.sources.source import (
    ConvertingSource,
    CuttableSource,
    DescribedSource,
    Layout,
    Source,
    check_dtype,
)

__all__ = [
    "Converted",
    "CutRows",
    "Rows",
    "Wrapper",
    "as_dtype",
    "chunk_bytes",
    "cut_source",
    "layout_of",
    "part_starts",
    "through_scratch",
]

_SCRATCH_BYTES = 1 << 20


def cut_source(source: Source, cuts: tuple[Cut, ...]) -> Source:
    """Return the source of ``row[cuts]``, reading only that where the source can."""
    if cuts == tuple(range(length) for length in source.shape[1:]):
        return source
    if isinstance(source, CuttableSource):
        return source.cut(cuts)
    return CutRows(source, cuts)


def layout_of(source: Source) -> Layout:
    """Return the source's layout, or what can be said without it."""
    if isinstance(source, DescribedSource):
        return source.layout()
    return Layout(
        format=type(source).__name__,
        path=None,
        key=None,
        storage=f"chunks of {source.chunk_rows} rows" if source.chunk_rows > 1 else "single rows",
        codec="unknown",
        stored_bytes=None,
        reading="by the source's own `read_into`",
    )


def as_dtype(given: DTypeLike) -> np.dtype[Any]:
    """Return a dtype that batches can hold, from what a caller gave.

    Raises
    ------
    oocdata.errors.ArgumentError
        If NumPy knows no such dtype.
    oocdata.errors.UnsupportedDtypeError
        If batches can't hold it.

    Examples
    --------
    >>> as_dtype("f4")
    dtype('float32')
    """
    try:
        dtype = np.dtype(given)
    except TypeError as error:
        raise ArgumentError(f"`dtype` must be a NumPy dtype; got {given!r}.") from error
    return check_dtype(dtype)


def part_starts(source: Source) -> tuple[int, ...]:
    """Return the first row of each file that a source is made of; ``(0,)`` for one."""
    starts: tuple[int, ...] = getattr(source, "part_starts", (0,))
    return starts


def chunk_bytes(source: Source) -> int:
    """Return the bytes that are decoded together, at one place along the rows.

    Examples
    --------
    >>> from oocdata.sources.memory import Memory
    >>> chunk_bytes(Memory(np.zeros((10, 3))))
    24
    """
    rows = source.chunk_rows * prod(source.shape[1:]) * source.dtype.itemsize
    decoded: int = getattr(source, "chunk_bytes", rows)
    return decoded


class Wrapper:
    """What a source in front of another one passes on."""

    __slots__ = ()
    source: Source

    @property
    def chunk_rows(self) -> int:
        """Rows stored and decoded together."""
        return self.source.chunk_rows

    @property
    def chunk_bytes(self) -> int:
        """Bytes decoded together, before the cut or the conversion."""
        return chunk_bytes(self.source)

    @property
    def part_starts(self) -> tuple[int, ...]:
        """The first row of each file of several."""
        return part_starts(self.source)

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return layout_of(self.source)


@dataclass(frozen=True)
class CutRows(Wrapper):
    """``row[cuts]`` of a source that only reads whole rows."""

    source: Source
    cuts: tuple[Cut, ...]

    converts = True

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return (self.source.shape[0], *cut_shape(self.cuts))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.source.dtype

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return layout_of(self.source).cut(self.cuts)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]`` after the cut; `out` may have any numeric dtype."""
        if out.size == 0:
            return
        key = [cut if isinstance(cut, int) else as_slice(cut) for cut in self.cuts]
        for part, whole in through_scratch(self.source, rows):
            out[part] = whole[(slice(None), *key)]


@dataclass(frozen=True, eq=False)
class Rows(Wrapper):
    """Chosen rows of a source, where the choice was made before it was opened.

    `View.of` makes the choice its own, and reads the source itself.

    Attributes
    ----------
    source : Source
    rows : range or ndarray of int64
        The rows in the source, in order.
    """

    source: Source
    rows: Selection

    converts = True
    chunk_rows = 1
    part_starts = (0,)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return (len(self.rows), *self.source.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.source.dtype

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``."""
        return Rows(cut_source(self.source, cuts), self.rows)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        source = self.source if out.dtype == self.dtype else Converted(self.source, out.dtype)
        source.read_into(take(self.rows, rows), out)


@dataclass(frozen=True)
class Converted(Wrapper):
    """A source delivered in another dtype."""

    source: Source
    dtype: np.dtype[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.source.shape

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``."""
        return Converted(cut_source(self.source, cuts), self.dtype)

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]`` in this dtype."""
        if isinstance(self.source, ConvertingSource) and self.source.converts:
            self.source.read_into(rows, out)
            return
        for part, whole in through_scratch(self.source, rows):
            out[part] = whole


def through_scratch(source: Source, rows: NDArray[np.int64]) -> Any:
    """Yield (slice of the batch, whole rows) in blocks that stay in the processor's cache."""
    row_bytes = max(1, prod(source.shape[1:]) * source.dtype.itemsize)
    count = max(1, min(len(rows), _SCRATCH_BYTES // row_bytes))
    scratch = np.empty((count, *source.shape[1:]), source.dtype)
    for start in range(0, len(rows), count):
        some = rows[start : start + count]
        source.read_into(some, scratch[: len(some)])
        yield slice(start, start + len(some)), scratch[: len(some)]
