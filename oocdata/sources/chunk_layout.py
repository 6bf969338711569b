"""Where rows lie in chunks: which chunks an element touches, and what is taken of each.

Integers alone. Chunks may split the element axes, so an element is put together from *columns* of
chunks, each of which fills its own part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import TypeAlias

import numpy as np

from oocdata.index import Cut

__all__ = ["Box", "ChunkLayout", "Column", "without"]

Box: TypeAlias = tuple[slice, ...]
"""One slice with start < stop and step 1 for each stored axis."""


def without(lengths: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return lengths without that of one axis.

    Examples
    --------
    >>> without((10, 3, 4), 1)
    (10, 4)
    """
    return lengths[:axis] + lengths[axis + 1 :]


@dataclass(frozen=True, slots=True)
class Column:
    """Chunks at one place on the element axes, and the part of an element that they fill.

    Attributes
    ----------
    places : tuple of int
        Of the chunks, on the element axes.
    within : tuple of int or slice
        What is taken of a chunk's element.
    target : tuple of slice
        Where it goes in the batch's element.
    whole : bool
        Both are everything.
    """

    places: tuple[int, ...]
    within: tuple[int | slice, ...]
    target: tuple[slice, ...]
    whole: bool
    first_key: int
    """Of the column's first chunk; the others follow by their numbers along the row axis."""


@dataclass(frozen=True, slots=True)
class ChunkLayout:
    """What reading rows from chunks needs to know, worked out once.

    Attributes
    ----------
    rows : int
        Of one chunk.
    element : tuple of int
        A chunk's shape without the row axis.
    item : str
        One row of a chunk as an opaque dtype.
    nbytes : int
        Of one chunk.
    axis : int
    shape, chunk_shape : tuple of int
        As stored.
    columns : tuple of Column
    """

    rows: int
    element: tuple[int, ...]
    item: str
    nbytes: int
    axis: int
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    columns: tuple[Column, ...]

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        chunk_shape: tuple[int, ...],
        axis: int,
        cuts: Sequence[Cut],
        itemsize: int,
        first_key: int,
    ) -> ChunkLayout:
        """Work out the columns that cuts of the element axes touch.

        Parameters
        ----------
        shape, chunk_shape : tuple of int
            As stored.
        axis : int
            The row axis.
        cuts : sequence of Cut
            What is kept of each element axis.
        itemsize : int
            Bytes of one number.
        first_key : int
            Key of the array's first chunk; the keys of all its chunks follow one another.

        Examples
        --------
        >>> layout = ChunkLayout.of((100, 30), (10, 20), 0, [range(5, 25)], 4, first_key=0)
        >>> [(column.places, column.within) for column in layout.columns]
        [((0,), (slice(5, 20, 1),)), ((1,), (slice(0, 5, 1),))]
        """
        element = without(chunk_shape, axis)
        row_bytes = prod(element) * itemsize
        axes = [_touched(cut, step) for cut, step in zip(cuts, element, strict=True)]
        whole = all(cut == range(step) for cut, step in zip(cuts, element, strict=True))
        grid = [-(-n // step) for n, step in zip(without(shape, axis), element, strict=True)]
        down = -(-shape[axis] // chunk_shape[axis])
        columns = []
        for parts in product(*axes):
            places = tuple(place for place, _, _ in parts)
            number = 0
            for place, length in zip(places, grid, strict=True):
                number = number * length + place
            within = tuple(inside for _, inside, _ in parts)
            target = tuple(outside for _, _, outside in parts if outside is not None)
            columns.append(Column(places, within, target, whole, first_key + number * down))
        return cls(
            rows=chunk_shape[axis],
            element=element,
            item=f"V{row_bytes}",
            nbytes=row_bytes * chunk_shape[axis],
            axis=axis,
            shape=shape,
            chunk_shape=chunk_shape,
            columns=tuple(columns),
        )

    def box(self, number: int, column: Column) -> Box:
        """Return where a chunk lies in the array, without what reaches over its edge."""
        index = [*column.places[: self.axis], number, *column.places[self.axis :]]
        return tuple(
            slice(place * step, min((place + 1) * step, length))
            for place, step, length in zip(index, self.chunk_shape, self.shape, strict=True)
        )


def _touched(cut: Cut, step: int) -> list[tuple[int, int | slice, slice | None]]:
    """Return (chunk, what is taken of it, where that goes) for each chunk on one axis."""
    if isinstance(cut, int):
        return [(cut // step, cut % step, None)]
    if not cut:
        return []
    kept = np.arange(cut.start, cut.stop, cut.step, dtype=np.int64)
    numbers = kept // step
    breaks = np.flatnonzero(np.diff(numbers)) + 1
    touched: list[tuple[int, int | slice, slice | None]] = []
    for first, last in pairwise([0, *breaks.tolist(), len(kept)]):
        number = int(numbers[first])
        start = int(kept[first]) - number * step
        stop = start + (last - first) * cut.step
        touched.append(
            (number, slice(start, stop if stop >= 0 else None, cut.step), slice(first, last))
        )
    return touched
