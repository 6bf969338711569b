"""Read all rows of a dataset once, in blocks, in threads, within the memory for batches.

The pass can continue after read errors: it reports the unreadable rows and reads the others.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
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
from oocdata.threads import Threads, cores, in_order
from oocdata.tools.report import progress as bar

BLOCK_BYTES = 8 << 20
"""Size of a block; larger blocks are no faster."""

_MOST_ROWS = 1 << 17
"""Rows that are located at a time, if they are not one box: their origins take memory too."""

_MOST_THREADS = 8

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Consecutive rows."""

    rows: range  # their positions
    values: NDArray[Any]  # (rows, *element), C-contiguous; 0 in unreadable rows
    failed: tuple[tuple[range, SourceError], ...] = ()  # unreadable rows, and why


def each_block(
    dataset: Dataset,
    work: Callable[[Block], Result],
    *,
    continue_on_error: bool = False,
    unit: int = 1,
    label: str = "",
    out: NDArray[Any] | None = None,
) -> Generator[Result]:
    """Read a dataset once, and yield the result of `work` for each block, in row order.

    A block is whole chunks of about 8 MiB, and a multiple of `unit` rows. Several threads read and
    work at a time, within half of the memory for batches. A chunk larger than that half is read in
    several blocks, and may be decoded more than once.

    The first read error is raised. With `continue_on_error`, `Block.failed` has the rows of the
    unreadable chunks instead (single rows, where every row has an address). With a `label`, a
    progress bar is shown on standard error. With `out`, of the shape of all rows, the blocks are
    parts of it.
    """
    total, row_bytes = len(dataset), spec_of_one_array(dataset).nbytes
    rows, threads, most = block_sizes(dataset, unit)
    chunks = chunk_rows(dataset)
    before = chunks.length - chunks.first  # rows of the first chunk that are not read
    first = rows - (before if rows % chunks.length == before % unit == 0 else 0)
    edges = chain([0] * (total > 0), range(first, total, rows), [total])

    def read(edges: tuple[int, int]) -> tuple[int, Result]:
        block = range(*edges)
        values = _empty(dataset, block) if out is None else out[slice(*edges)]
        failed = _fill(dataset, block, values, continue_on_error)
        return len(block), work(Block(block, values, tuple(failed)))

    with (
        bar(label, total * row_bytes, shown=bool(label)) as advance,
        closing(in_order(Threads(threads, "oocdata-pass"), read, pairwise(edges), most)) as results,
    ):
        for count, result in results:
            yield result
            advance(count * row_bytes)


def spec_of_one_array(dataset: Dataset) -> ArraySpec:
    """Return the spec of the elements; raise `ArgumentError` unless an element is one array."""
    spec = dataset.spec
    if not isinstance(spec, ArraySpec):
        raise ArgumentError(
            f"`target` must have elements of one array; got {dataset!r}. Give the View that it is "
            "made from, or take one array of each element, in `.map`."
        )
    return spec


def chunk_rows(dataset: Dataset) -> Blocks:
    """Return the chunks of a dataset if they are regular; otherwise, blocks of one row."""
    blocks = dataset.blocks
    return blocks if isinstance(blocks, Blocks) else ADDRESSABLE


def block_sizes(dataset: Dataset, unit: int) -> tuple[int, int, int]:
    """Return the rows of a block, the number of threads, and the most blocks read ahead."""
    row_bytes = max(1, spec_of_one_array(dataset).nbytes)
    threads = max(2, min(_MOST_THREADS, cores()))
    budget = batch_share() // 2  # `work` takes memory as well
    rows = max(1, min(BLOCK_BYTES, budget // threads) // row_bytes)
    most, length = max(1, budget // row_bytes), chunk_rows(dataset).length
    step = lcm(length, unit)
    if step > most:  # blocks begin within chunks
        step, rows = unit, min(max(rows, length), most)
    rows = min(max(rows, step) // step * step, max(1, len(dataset)))
    fitting = max(1, budget // (rows * row_bytes))
    return rows, min(threads, fitting), min(threads + 1, fitting)


def _empty(dataset: Dataset, rows: range) -> NDArray[Any]:
    """Return an uninitialised, C-contiguous array for these rows."""
    spec = spec_of_one_array(dataset)
    return np.empty((len(rows), *cast("tuple[int, ...]", spec.shape)), spec.dtype)


def read_rows(dataset: Dataset, rows: range) -> NDArray[Any]:
    """Return consecutive rows of a dataset of one array, C-contiguous."""
    out = _empty(dataset, rows)
    _read_into(dataset, rows, out)
    return out


def _read_into(dataset: Dataset, rows: range, out: NDArray[Any]) -> None:
    """Read consecutive rows into a C-contiguous array of their shape and dtype."""
    if not isinstance(dataset, View):
        out[...] = dataset.take(np.arange(rows.start, rows.stop))
    elif len(dataset.axes) == 1 and isinstance(dataset.rows, range):
        # The rows are a single box. In processor time, `stats` takes 1 / 1.2 with rows of 16 bytes
        # in .npy and 1 / 1.3 with rows of 128 bytes in HDF5, and `check` less than 1 / 2.
        box = dataset[rows.start : rows.stop].windows(len(rows), episodes="none")
        (whole,) = box.requests(np.zeros(1, np.int64), Draw())
        whole.read_to(out[None])
    else:
        for first in range(rows.start, rows.stop, _MOST_ROWS):
            positions = np.arange(first, min(first + _MOST_ROWS, rows.stop))
            (request,) = dataset.requests(positions, Draw())
            request.read_to(out[first - rows.start :][: len(positions)])


def _fill(
    dataset: Dataset, rows: range, out: NDArray[Any], continue_on_error: bool
) -> list[tuple[range, SourceError]]:
    """Read rows; find unreadable chunks by bisection, and return their rows and errors."""
    try:
        _read_into(dataset, rows, out)
        return []
    except (SourceError, OSError) as error:
        if not continue_on_error:
            raise
        if not isinstance(error, SourceError):
            error = SourceError(f"the rows must be readable; {error}.")
        failure = error.with_traceback(None)  # the frames would keep the memory alive
    out[...] = 0
    chunks = chunk_rows(dataset)
    first, last = chunks.of(np.array([rows.start, rows.stop - 1])).tolist()
    if first == last:
        return [(rows, failure)]
    middle = int(chunks.starts(np.array([(first + last + 1) // 2]))[0])
    lower, upper = range(rows.start, middle), range(middle, rows.stop)
    found = _fill(dataset, lower, out[: len(lower)], continue_on_error)
    return found + _fill(dataset, upper, out[len(lower) :], continue_on_error)
