"""The one pass over all rows of an array: in blocks, in threads, within the memory for batches.

It can go on after faults: then it says which rows can't be read, and why, and reads the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import lcm
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import ADDRESSABLE, Blocks
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, SourceError
from oocdata.memory import batch_share
from oocdata.threads import cores, in_order
from oocdata.tools.progress import progress as bar
from oocdata.tools.ranges import outside

__all__ = ["Block", "each_block", "read_rows", "spec_of_one_array"]

BLOCK_BYTES = 8 << 20
"""Of a block: more is no faster."""

_MOST_THREADS = 8

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rows that follow one another."""

    rows: range
    """Their positions."""
    values: NDArray[Any]
    """Of shape (rows, *element), C-contiguous; zero where rows were skipped or can't be read."""
    failed: tuple[tuple[range, SourceError], ...] = ()
    """Which rows can't be read, and why."""
    skipped: bool = False
    """Nothing of it was to be read."""


def each_block(
    dataset: Dataset,
    work: Callable[[Block], Made],
    *,
    goes_on: bool = False,
    skip: Sequence[range] = (),
    unit: int = 1,
    label: str = "",
) -> Generator[Made]:
    """Read a dataset once, and yield what `work` makes of each block, from first to last row.

    Blocks are whole chunks of about 8 MiB. Several threads read and work at a time, as many as half
    of the memory for batches has room for; a block larger than that half is read in fewer rows, and
    then a chunk may be decoded more than once.

    Parameters
    ----------
    dataset : Dataset
        Of one array.
    work : callable
        Called in threads; its results come in order.
    goes_on : bool
        Go on after an error: `Block.failed` has the rows that one chunk, or one row where rows have
        addresses, makes unreadable. Otherwise the first error is raised.
    skip : sequence of range
        Positions that are not read, ascending.
    unit : int
        Every block but the last holds a multiple of as many rows.
    label : str
        Of the bar on standard error; empty for none.

    Raises
    ------
    oocdata.errors.SourceError
        If a row can't be read, unless it goes on.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(10).reshape(5, 2))
    >>> list(each_block(view, lambda block: (block.rows, int(block.values.sum())), unit=5))
    [(range(0, 5), 45)]
    """
    from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`: it is slow

    row_bytes = spec_of_one_array(dataset).nbytes
    rows, threads = _sizes(dataset, unit)

    def read(block: range) -> tuple[int, Made]:
        whole = next(outside(block, skip), None) == block
        found = _read(dataset, block, goes_on) if whole else _read_parts(dataset, block, skip)
        if found.failed and not goes_on:
            raise found.failed[0][1]
        return len(block), work(found)

    with (
        bar(label, len(dataset) * row_bytes, shown=bool(label)) as advance,
        ThreadPoolExecutor(threads, "oocdata-pass") as pool,
        closing(in_order(pool, read, _ranges(dataset, rows), threads + 1)) as each,
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
            "made from, or choose one array in `.map`."
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


def _ranges(dataset: Dataset, rows: int) -> Iterator[range]:
    total, borders = len(dataset), _borders(dataset)
    start = 0
    stop = rows - (borders.length - borders.first if rows % borders.length == 0 else 0)
    while start < total:
        yield range(start, min(stop, total))
        start, stop = stop, stop + rows


def read_rows(dataset: Dataset, rows: range) -> NDArray[Any]:
    """Return rows of a dataset of one array that follow one another, C-contiguous."""
    if isinstance(dataset, View) and len(dataset.axes) == 1 and isinstance(dataset.rows, range):
        part = dataset[rows.start : rows.stop]
        one = part.windows(len(rows), episodes="none")  # a single box
        box: NDArray[Any] = cast("NDArray[Any]", one.take([0]))[0]
        return box
    taken = cast("NDArray[Any]", dataset.take(np.arange(rows.start, rows.stop)))
    return np.ascontiguousarray(taken)  # a mapped function may return any layout


def _read(dataset: Dataset, rows: range, goes_on: bool) -> Block:
    try:
        return Block(rows, read_rows(dataset, rows))
    except (SourceError, OSError):
        if not goes_on:
            raise
    return _read_parts(dataset, rows, ())


def _read_parts(dataset: Dataset, rows: range, skip: Sequence[range]) -> Block:
    """Read what can be read of a block, outside of what is skipped."""
    spec = spec_of_one_array(dataset)
    values = np.zeros((len(rows), *cast("tuple[int, ...]", spec.shape)), spec.dtype)
    failed: list[tuple[range, SourceError]] = []
    for part in outside(rows, skip):
        failed += _fill(dataset, part, values[part.start - rows.start : part.stop - rows.start])
    return Block(rows, values, tuple(failed), skipped=next(outside(rows, skip), None) is None)


def _fill(dataset: Dataset, rows: range, out: NDArray[Any]) -> Iterator[tuple[range, SourceError]]:
    """Read rows; yield those that can't be, as few as lie in one chunk, and why."""
    try:
        out[...] = read_rows(dataset, rows)
        return
    except SourceError as error:
        failure = error.with_traceback(None)  # whose frames would keep the memory
    except OSError as error:
        failure = SourceError(f"the rows must be readable; {error}.")
    borders = _borders(dataset)
    first, last = borders.of(np.array([rows.start, rows.stop - 1])).tolist()
    if first == last:
        yield rows, failure
        return
    middle = int(borders.starts(np.array([(first + last + 1) // 2]))[0])
    yield from _fill(dataset, range(rows.start, middle), out[: middle - rows.start])
    yield from _fill(dataset, range(middle, rows.stop), out[middle - rows.start :])
