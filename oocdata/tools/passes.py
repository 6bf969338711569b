"""The one pass over all rows of an array: in blocks, in threads, within the memory for batches.

It can go on after faults: then it says which rows can't be read, and why, and reads the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, pairwise
from math import lcm
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, Blocks
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, SourceError
from oocdata.memory import batch_share
from oocdata.threads import cores, in_order
from oocdata.tools.lines import progress as bar

__all__ = ["Block", "each_block", "read_into", "read_rows", "spec_of_one_array"]

BLOCK_BYTES = 8 << 20
"""Of a block: more is no faster."""

_MOST_THREADS = 8

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows that follow one another."""

    rows: range  # their positions
    values: NDArray[Any]  # (rows, *element), C-contiguous; 0 where not readable
    failed: tuple[tuple[range, SourceError], ...] = ()  # which rows can't be read, and why


def each_block(
    dataset: Dataset,
    work: Callable[[Block], Made],
    *,
    goes_on: bool = False,
    unit: int = 1,
    label: str = "",
) -> Generator[Made]:
    """Read a dataset once, and yield what `work` makes of each block, from first to last row.

    Blocks are whole chunks of about 8 MiB, and of a multiple of `unit` rows. Several threads read
    and work at a time, as many as half of the memory for batches has room for; a block larger than
    that half is read in fewer rows, and then a chunk may be decoded more than once.

    The first error is raised; or it `goes_on`, and `Block.failed` has the rows that one chunk, or
    one row where rows have addresses, makes unreadable. A bar with a `label` is shown on standard
    error.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(10).reshape(5, 2))
    >>> list(each_block(view, lambda block: (block.rows, int(block.values.sum())), unit=5))
    [(range(0, 5), 45)]
    """
    total, row_bytes = len(dataset), spec_of_one_array(dataset).nbytes
    rows, threads = _sizes(dataset, unit)
    borders = _borders(dataset)
    first = rows - (borders.length - borders.first if rows % borders.length == 0 else 0)
    edges = chain([0] * (total > 0), range(first, total, rows), [total])

    def read(edges: tuple[int, int]) -> tuple[int, Made]:
        block = range(*edges)
        values = _room(dataset, block)
        failed = _fill(dataset, block, values, goes_on)
        return len(block), work(Block(block, values, tuple(failed)))

    with (
        bar(label, total * row_bytes, shown=bool(label)) as advance,
        ThreadPoolExecutor(threads, "oocdata-pass") as pool,
        closing(in_order(pool, read, pairwise(edges), threads + 1)) as each,
    ):
        for count, made in each:
            yield made
            advance(count * row_bytes)


def spec_of_one_array(dataset: Dataset) -> ArraySpec:
    """Return the spec of an element that must be one array."""
    spec = dataset.spec
    if not isinstance(spec, ArraySpec):
        raise ArgumentError(
            f"`target` must have elements of one array; got {dataset!r}. Give the View that it is "
            "made from, or take one array of each element, in `.map`."
        )
    return spec


def _borders(dataset: Dataset) -> Blocks:
    """Return where the chunks of a dataset begin, as far as a rule tells it."""
    blocks = dataset.blocks
    return blocks if isinstance(blocks, Blocks) else ADDRESSABLE


def _sizes(dataset: Dataset, unit: int) -> tuple[int, int]:
    """Return the rows of a block, and how many blocks are read and worked on at a time."""
    row_bytes = max(1, spec_of_one_array(dataset).nbytes)
    threads = max(2, min(_MOST_THREADS, cores()))
    room = batch_share() // 2  # `work` takes memory as well
    rows = max(1, min(BLOCK_BYTES, room // threads) // row_bytes)
    together = lcm(_borders(dataset).length, unit)
    if together > rows:  # one chunk; or what there is room for
        rows = min(together, max(rows, room // row_bytes))
    step = together if rows >= together else unit
    rows = min(max(rows - rows % step, unit), max(1, len(dataset)))
    return rows, max(1, min(threads, room // (rows * row_bytes)))


def _room(dataset: Dataset, rows: range) -> NDArray[Any]:
    """Return memory for rows of a dataset of one array, C-contiguous."""
    spec = spec_of_one_array(dataset)
    return np.empty((len(rows), *cast("tuple[int, ...]", spec.shape)), spec.dtype)


def read_rows(dataset: Dataset, rows: range) -> NDArray[Any]:
    """Return rows of a dataset of one array that follow one another, C-contiguous."""
    out = _room(dataset, rows)
    read_into(dataset, rows, out)
    return out


def read_into(dataset: Dataset, rows: range, out: NDArray[Any]) -> None:
    """Read rows that follow one another into C-contiguous memory of their shape and dtype."""
    if not isinstance(dataset, View):
        out[...] = dataset.take(np.arange(rows.start, rows.stop))
    elif len(dataset.axes) == 1 and isinstance(dataset.rows, range):  # rows that are a single box
        box = dataset[rows.start : rows.stop].windows(len(rows), episodes="none")
        (request,) = box.requests(np.zeros(1, np.int64), Draw())
        request.read_into(out[None])
    else:
        (request,) = dataset.requests(np.arange(rows.start, rows.stop), Draw())
        request.read_into(out)


def _fill(
    dataset: Dataset, rows: range, out: NDArray[Any], goes_on: bool
) -> list[tuple[range, SourceError]]:
    """Read rows; return those that can't be, as few as lie in one chunk, and why."""
    try:
        read_into(dataset, rows, out)
        return []
    except (SourceError, OSError) as error:
        if not goes_on:
            raise
        told = SourceError(f"the rows must be readable; {error}.")
        failure = error if isinstance(error, SourceError) else told
        failure = failure.with_traceback(None)  # whose frames would keep the memory
    out[...] = 0
    borders = _borders(dataset)
    first, last = borders.of(np.array([rows.start, rows.stop - 1])).tolist()
    if first == last:
        return [(rows, failure)]
    middle = int(borders.starts(np.array([(first + last + 1) // 2]))[0])
    lower, upper = range(rows.start, middle), range(middle, rows.stop)
    found = _fill(dataset, lower, out[: len(lower)], goes_on)
    return found + _fill(dataset, upper, out[len(lower) :], goes_on)
