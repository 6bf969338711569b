"""In which stored chunks rows lie, and what is taken of each. Integer arithmetic alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocdata.index import Selection, as_slice, select
from oocdata.sources.chunk_layout import Box, ChunkLayout
from oocdata.sources.chunks import Chunks

__all__ = ["Piece", "is_run", "pieces_of", "shifted", "split"]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stored chunk, and what is taken of it.

    Attributes
    ----------
    box : tuple of slice
        Where it lies in storage.
    within : tuple
        What is taken of it, rows first.
    where : range or ndarray of int64
        Which of the rows asked for lie in it.
    target : tuple of slice
        Where it goes in each of them.
    whole : bool
        All of it is taken, as it lies.
    """

    box: Box
    within: tuple[Any, ...]
    where: Selection
    target: tuple[slice, ...]
    whole: bool


def pieces_of(source: Chunks, rows: Selection) -> Iterator[Piece]:
    """Yield the chunks in which rows lie; where any box costs what it holds, one for a run."""
    reader, axis = source.reader, source.axis
    if max(reader.chunk_shape) == 1:
        yield _one_box(source, rows)
        return
    layout = ChunkLayout.of(reader.shape, reader.chunk_shape, axis, source.cuts, 1, 0)
    for number, where in split(rows, range(0, reader.shape[axis], layout.rows)):
        inside = shifted(select(rows, where), -number * layout.rows)
        taken = as_slice(inside) if isinstance(inside, range) else inside
        for column in layout.columns:
            box = layout.box(number, column)
            whole = _takes_all([taken, *column.within], [box[axis], *box[:axis], *box[axis + 1 :]])
            yield Piece(box, (taken, *column.within), where, column.target, whole)


def _one_box(source: Chunks, rows: Selection) -> Piece:
    box: list[slice] = []
    within: list[int | slice] = []
    for cut in (rows, *source.cuts):
        ends = (cut, cut) if isinstance(cut, int) else (int(cut[0]), int(cut[-1]))
        box.append(slice(min(ends), max(ends) + 1))
        inside = 0 if isinstance(cut, int) else shifted(cut, -min(ends))
        within.append(as_slice(inside) if isinstance(inside, range) else 0)
    whole = _takes_all(within, box)
    box.insert(source.axis, box.pop(0))
    return Piece(tuple(box), tuple(within), range(len(rows)), (), whole)


def _takes_all(within: Sequence[Any], box: Sequence[slice]) -> bool:
    """Return whether all of a box is taken, in order."""
    return all(
        isinstance(taken, slice) and taken == slice(0, part.stop - part.start, 1)
        for taken, part in zip(within, box, strict=True)
    )


def split(rows: Selection, starts: Sequence[int]) -> Iterator[tuple[int, Selection]]:
    """Yield the stretches of an axis in which rows lie, each with the places of these rows.

    Parameters
    ----------
    rows : range or ndarray of int64
    starts : sequence of int
        Where each stretch begins, ascending; the first one at 0.

    Examples
    --------
    >>> list(split(range(7, 0, -2), range(0, 12, 4)))
    [(0, range(2, 4)), (1, range(0, 2))]
    >>> [(number, places.tolist()) for number, places in split(np.array([5, 0, 6]), (0, 4))]
    [(0, [1]), (1, [0, 2])]
    """
    if isinstance(rows, range):
        rising = rows if rows.step > 0 else rows[::-1]
        first, last = (bisect_right(starts, row) - 1 for row in (rising[0], rising[-1]))
        edges = [bisect_left(rising, starts[number]) for number in range(first + 1, last + 1)]
        for number, (begin, end) in enumerate(
            zip([0, *edges], [*edges, len(rows)], strict=True), first
        ):
            if begin < end:
                back = range(len(rows) - end, len(rows) - begin)
                yield number, range(begin, end) if rows.step > 0 else back
        return
    numbers = np.searchsorted(np.asarray(starts), rows, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        yield int(numbers[places[0]]), places


def shifted(rows: Selection, by: int) -> Selection:
    """Return rows, each `by` further.

    Examples
    --------
    >>> shifted(range(10, 0, -5), -5)
    range(5, -5, -5)
    """
    if isinstance(rows, range):
        return range(rows.start + by, rows.stop + by, rows.step)
    return rows + by


def is_run(rows: Selection) -> bool:
    """Return whether rows follow one another.

    Examples
    --------
    >>> is_run(range(3, 7)), is_run(range(3, 7, 2))
    (True, False)
    """
    return isinstance(rows, range) and rows.step == 1
