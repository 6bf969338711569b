"""`oocdata stats`: range, mean and deviation of an array of any size, in one pass.

Blocks of rows are read ahead (`oocdata.tools.passes`) and summed up by as many threads as there are
cores. The statistics are those of the finite values; NaN and infinities are counted apart.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError
from oocdata.threads import cores, in_order
from oocdata.tools.passes import BLOCK_BYTES, blocks
from oocdata.tools.progress import progress as progress_bar
from oocdata.tools.stats.channels import Channels, channels_of
from oocdata.tools.stats.moments import Moments, Tree
from oocdata.tools.stats.pieces import Layers, layers, moments, shift_of
from oocdata.tools.stats.result import Stats
from oocdata.tools.stats.rows import BlockRows, RowSearch
from oocdata.tools.stats.summary import overall_of, summary_of

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["stats"]

_MOST_THREADS = 8
"""More would wait for what is read, and each has a block."""


def stats(
    dataset: Dataset,
    *,
    axis: int | Literal["auto"] | None = "auto",
    duplicates: bool = True,
    progress: bool = False,
) -> Stats:
    """Return count, NaN, range, mean and deviation of an array, per channel and overall.

    Reads everything once, in blocks. Give it the part that you train on, ``stats(train)``, and
    nothing of the others can leak into how you scale.

    Parameters
    ----------
    dataset : Dataset
        Of one array: a View, or what is mapped or windowed to be one array. Windows count a row as
        often as it is in one.
    axis : int or None or "auto"
        The axis of the channels, in the array with its rows: 1 for NCHW, -1 for NHWC. None: no
        channels. "auto": what the shape suggests, by the rule of
        `oocdata.tools.stats.channels.channels_of`; the result says which, and why. Complex numbers
        are taken apart: their channels are the real and the imaginary parts.
    duplicates : bool
        Whether to look for rows that are bit for bit the same, by a hash of 128 bits (XXH3): a
        match is not read again. Takes 16 bytes of memory a row, and up to 64 at last; above ten
        million rows, only neighbours are compared, and the result says so.
    progress : bool
        Show a bar on standard error, where that is a terminal.

    Returns
    -------
    Stats
        ``print`` it; `Stats.normalization` is for ``keras.layers.Normalization``,
        `Stats.standardize` for ``map``.

    Raises
    ------
    oocdata.errors.ArgumentError
        If it is no dataset of one array, or has no such axis.
    oocdata.errors.SourceError
        If storage can't deliver a row.

    Notes
    -----
    The variance is that of the population (divided by n), as NumPy's default and Keras's. Sums are
    taken in float64 of differences from a value near the mean, and merged pairwise, see
    `oocdata.tools.stats.moments`; least and greatest integers are exact.

    Memory: up to three blocks of 16 MiB that are read ahead, and one for each core, of eight at
    most (of larger rows or chunks, up to five blocks of one each); fingerprints of rows; about a
    KiB for each channel.

    Examples
    --------
    >>> import oocdata as ooc
    >>> train, test = ooc.open(np.arange(24.0).reshape(4, 2, 3)).split(0.5, 0.5)
    >>> found = stats(train, axis=1)
    >>> found.mean, found.variance
    (array([4., 7.]), array([9.66666667, 9.66666667]))
    >>> print(found.overall.min, found.overall.max)
    0.0 11.0
    """
    spec = _checked(dataset)
    shape = (len(dataset), *cast("tuple[int, ...]", spec.shape))
    if spec.dtype.kind == "c":
        if axis != "auto":
            raise ArgumentError(
                "`axis` must be left out for complex numbers, whose channels are the real and the "
                f"imaginary parts; got {axis!r}. For others, take them apart in `.map`, and give "
                "stats what comes out."
            )
        channels = Channels(len(shape), "the real and the imaginary parts")
    else:
        channels = channels_of(shape, axis)
    search = RowSearch(len(dataset), spec, duplicates)
    tree = Tree()
    shift: NDArray[np.float64] | None = None
    with (
        progress_bar("reading", len(dataset) * spec.nbytes, shown=progress) as advance,
        closing(_each(dataset, channels.axis, search)) as each,
    ):
        for found in each:
            tree.add(found.moments)
            search.add(found.rows)
            advance(found.rows.number * spec.nbytes)
            shift = found.shift
    number = 1 if channels.axis is None else (*shape, 2)[channels.axis]
    found_moments = tree.merged(Moments.of_nothing((number,), spec.dtype))
    shift = np.zeros(number) if shift is None else shift
    return Stats(
        read=_read(dataset),
        shape=shape,
        dtype=str(spec.dtype),
        axis=channels.axis,
        axis_reason=channels.reason,
        channels=summary_of(found_moments, shift),
        overall=overall_of(found_moments, shift),
        rows=search.found(),
        packed=dataset.storage.packed if isinstance(dataset, View) else "",
    )


def _read(dataset: Dataset) -> str:
    if not isinstance(dataset, View):
        return f"{len(dataset):,} elements of {dataset!r}"
    number, rows = len(dataset), dataset.rows
    total = prod(dataset.source.shape[axis] for axis in dataset.axes)
    if not number:
        return "no rows"
    if isinstance(rows, range) and rows.step == 1:
        if number == total:
            return f"all {number:,} rows"
        return f"{number:,} of {total:,} rows: {rows[0]:,} to {rows[-1]:,}"
    return f"{number:,} rows, chosen of {total:,}"


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What is known of one block."""

    moments: Moments
    shift: NDArray[np.float64]
    rows: BlockRows


def _each(dataset: Dataset, axis: int | None, search: RowSearch) -> Generator[_Found]:
    """Sum up the blocks of a dataset in threads, and yield what was found in their order."""
    from concurrent.futures import ThreadPoolExecutor  # not for `import oocdata`

    def shifted() -> Generator[tuple[NDArray[Any], NDArray[np.float64]]]:
        shift: NDArray[np.float64] | None = None  # of a channel; NaN until it has a finite value
        with closing(_blocks(dataset)) as read:
            for block in read:
                if shift is None:
                    shift = shift_of(_layers(block, axis))
                elif np.isnan(shift).any():
                    shift = np.where(np.isnan(shift), shift_of(_layers(block, axis)), shift)
                yield block, np.nan_to_num(shift)
                del block

    def found(item: tuple[NDArray[Any], NDArray[np.float64]]) -> _Found:
        block, shift = item
        return _Found(moments(_layers(block, axis), shift), shift, search.look(block))

    threads = min(cores(), _MOST_THREADS)
    # Of large rows one at a time: each block is memory.
    large = cast("ArraySpec", dataset.spec).nbytes > 2 * BLOCK_BYTES
    with (
        ThreadPoolExecutor(threads, "oocdata-stats") as pool,
        closing(shifted()) as items,
        closing(in_order(pool, found, items, 1 if large else threads)) as each,
    ):
        yield from each


def _layers(block: NDArray[Any], axis: int | None) -> Layers:
    if block.dtype.kind == "c":  # the real and the imaginary parts are channels, on a last axis
        block = block.view(block.real.dtype).reshape(*block.shape, 2)
    return layers(block, axis)


def _blocks(dataset: Dataset) -> Generator[NDArray[Any]]:
    if isinstance(dataset, View):
        for _, block in blocks(dataset):
            yield block
    elif len(dataset):
        nbytes = max(1, cast("ArraySpec", dataset.spec).nbytes)
        batches = dataset.batches(min(len(dataset), max(1, BLOCK_BYTES // nbytes))).epoch(0)
        with closing(cast("Generator[NDArray[Any]]", batches)) as read:
            yield from map(np.ascontiguousarray, read)  # a function may return any layout


def _checked(dataset: Any) -> ArraySpec:
    if not isinstance(dataset, Dataset):
        hint = "Give `loader.dataset`." if hasattr(dataset, "dataset") else "Use `ooc.open`."
        raise ArgumentError(f"`dataset` must be a Dataset; got {type(dataset).__name__}. {hint}")
    spec = dataset.spec
    if not isinstance(spec, ArraySpec):
        raise ArgumentError(
            f"`dataset` must have elements of one array; got {dataset!r}. Take the statistics of "
            "the View it is made from, or choose one array in `.map`."
        )
    return spec
