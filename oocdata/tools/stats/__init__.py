"""`oocdata stats`: range, mean and deviation of an array of any size, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from oocdata.axes import axes_of, row_axes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError
from oocdata.tools.opening import OpenArguments, Opening, describe_rows
from oocdata.tools.passes import Block, each_block, spec_of_one_array
from oocdata.tools.stats.moments import Summary
from oocdata.tools.stats.result import RowsFound, Stats

__all__ = ["RowsFound", "Stats", "constant_rows", "fingerprints", "repeats", "stats"]

MOST_ROWS = 10_000_000
"""Among which repeats are looked for: 16 bytes a row while reading, 64 when compared."""

_SHOWN = 100
"""Rows that are listed, of those that were counted."""


def stats(
    target: Any,
    key: str | None = None,
    *,
    channels: int | str | None = "auto",
    duplicates: bool = True,
    progress: bool = False,
    **opening: Unpack[OpenArguments],
) -> Stats:
    """Return count, NaN, range, mean and deviation of an array, per channel and overall.

    Reads everything once, in blocks. Give it the part that you train on, ``stats(train)``, and
    nothing of the others can leak into how you scale.

    Parameters
    ----------
    target : Dataset, or what `oocdata.open` takes
        A View, or what is mapped or windowed to be one array. Windows count a row as often as it
        is in one.
    key, **opening
        As for `oocdata.open`, where `target` is not open yet.
    channels : int, str or None
        The axis of the channels, in the array with its rows (1 for NCHW, -1 for NHWC), or its name
        in the file. None: no channels. "auto": by names and lengths, see `oocdata.axes`; the
        columns of a table have statistics each. The result says which axis, and why. Complex
        numbers are taken apart: their channels are the real and the imaginary parts.
    duplicates : bool
        Whether to look for rows that are bit for bit the same, by a hash of 128 bits (XXH3): a
        match is not read again. Takes 16 bytes of memory a row, and up to 64 at last; above ten
        million rows it is not done, and the result says so.
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
    The statistics are those of the finite values; NaN and infinities are counted apart. The
    variance is that of the population (divided by n), as NumPy's default and Keras's. Sums are
    taken in float64, see `oocdata.tools.stats.moments`; least and greatest integers are exact.

    Memory: blocks of 8 MiB, within half of the memory for batches (see `oocdata.set_memory`), or
    one row; fingerprints of rows; about a KiB for each channel.

    Examples
    --------
    >>> import oocdata as ooc
    >>> train, test = ooc.open(np.arange(24.0).reshape(4, 2, 3)).split(0.5, 0.5)
    >>> found = stats(train, channels=1)
    >>> found.mean, found.variance
    (array([4., 7.]), array([9.66666667, 9.66666667]))
    >>> print(found.overall.min, found.overall.max)
    0.0 11.0
    """
    given = Opening.of(target, key, **opening)
    dataset = given.numbers()
    spec = spec_of_one_array(dataset)
    shape = (len(dataset), *cast("tuple[int, ...]", spec.shape))
    axis, reason = _channel_axis(dataset, shape, spec.dtype, channels)
    number = 1 if axis is None else (*shape, 2)[axis]
    too_small = spec.nbytes <= spec.dtype.itemsize  # a number is constant, and often repeated
    not_compared = ""
    if too_small:
        not_compared = "a row is one number" if spec.nbytes else "a row holds no number"
    elif not duplicates:
        not_compared = "as asked"
    elif len(dataset) > MOST_ROWS:
        not_compared = f"there are more than {MOST_ROWS:,} rows"
    prints = np.empty((0 if not_compared else len(dataset), 2), np.uint64)

    def look(block: Block) -> tuple[Summary, NDArray[np.int64]]:
        values = block.values
        if not not_compared:
            prints[block.rows.start : block.rows.stop] = fingerprints(values)
        constant = np.empty(0, np.int64) if too_small else constant_rows(values)
        if values.dtype.kind == "c":  # real and imaginary parts are channels, on a last axis
            values = values.view(values.real.dtype).reshape(*values.shape, 2)
        return Summary.of(values, axis), constant + block.rows.start

    whole = Summary.of_nothing(number, np.empty(0, spec.dtype).real.dtype)
    constant, constant_shown = 0, list[int]()
    with closing(each_block(dataset, look, label="reading" if progress else "")) as each:
        for moments, rows in each:
            whole = Summary.merged([whole, moments])
            constant += len(rows)
            constant_shown += rows[: _SHOWN - len(constant_shown)].tolist()
    pairs = repeats(prints)
    found = RowsFound(
        None if too_small else constant,
        tuple(constant_shown),
        None if not_compared else len(pairs),
        tuple((row, earlier) for row, earlier in pairs[:_SHOWN].tolist()),
        not_compared,
    )
    total = (whole if number else Summary.of_nothing(1, whole.low.dtype)).together()
    return Stats(
        name=given.name,
        read=describe_rows(dataset),
        shape=shape,
        dtype=str(spec.dtype),
        axis=axis,
        axis_reason=reason,
        channels=whole,
        overall=total,
        rows=found,
        packed=dataset.storage.packed if isinstance(dataset, View) else "",
    )


def _channel_axis(
    dataset: Dataset, shape: tuple[int, ...], dtype: np.dtype[Any], channels: int | str | None
) -> tuple[int | None, str]:
    """Return the axis of the channels in the array with its rows, and why that one."""
    if dtype.kind == "c":
        if channels != "auto":
            raise ArgumentError(
                "`channels` must be left out for complex numbers, whose channels are the real and "
                f"the imaginary parts; got {channels!r}. For others, take them apart in `.map`, "
                "and give stats what comes out."
            )
        return len(shape), "the real and the imaginary parts"
    if channels is None:
        return None, "as asked"
    axes = row_axes(dataset) if isinstance(dataset, View) else axes_of(shape[1:])
    if isinstance(dataset, Windows) and dataset.view is not None and all(dataset.time_axes):
        rows = row_axes(dataset.view)
        if not set("WTD") <= set(rows.letters):
            axes = rows.in_time(shape[1])
    reason = axes.reason.replace("by their", "by the axes'")
    if channels == "auto":
        if axes.channel is None:
            words = {
                "number": "a row is one number",
                "curve": f"rows of {shape[-1]:,} numbers are taken for signals",
            }
            return None, words.get(axes.kind, f"the axes of a row are {axes}, {reason}")
        return axes.channel + 1, f"{axes.names[axes.channel]}, {reason}"
    ndim = len(shape)
    number = ndim
    if isinstance(channels, str):
        number = axes.names.index(channels) + 1 if channels in axes.names else ndim
    elif isinstance(channels, int | np.integer) and not isinstance(channels, bool):
        number = int(channels)
    if not -ndim <= number < ndim or number % ndim == 0:
        names = ", ".join(axes.names)
        there = f"1 to {ndim - 1}, or {names}" if ndim > 1 else "none: a row is one number"
        raise ArgumentError(
            f"`channels` must be an axis of a row ({there}), None or 'auto'; got {channels!r} for "
            f"the shape {shape}. Axis 0 is that of the rows."
        )
    return number % ndim, "as asked"


def constant_rows(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return which rows hold one value only; all NaN is one value, and 0.0 is -0.0.

    Examples
    --------
    >>> constant_rows(np.array([[1, 2], [3, 3], [0, 0]]))
    array([1, 2])
    """
    flat = block.reshape(len(block), -1)
    low, high = flat.min(axis=1), flat.max(axis=1)  # NaN where a value is
    same = low == high
    suspects = np.flatnonzero(low != low)
    same[suspects] = (flat[suspects] != flat[suspects]).all(axis=1)
    return np.flatnonzero(same)


def fingerprints(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 128 bits for each row, shape (rows, 2), the same for rows of the same bits.

    Rows of up to 16 bytes are their own fingerprints; of longer ones it is XXH3 (128 bits, seed 0,
    xxHash 0.8).

    Examples
    --------
    >>> one, other, again = fingerprints(np.array([[1.0] * 9, [2.0] * 9, [1.0] * 9]))
    >>> bool((one == again).all()), bool((one == other).all())
    (True, False)
    """
    rows = len(block)
    stored = block.reshape(rows, -1).view(np.uint8)
    nbytes = stored.shape[1]
    if nbytes > 16:
        digest: Callable[[Any], bytes] = xxh3_128_digest
        digests = b"".join(map(digest, stored))
        return np.frombuffer(digests, np.uint64).reshape(rows, 2)
    padded = np.zeros((rows, 16), np.uint8)
    padded[:, :nbytes] = stored
    return padded.view(np.uint64)


def repeats(prints: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return pairs of a row whose fingerprint came before, and the first that has it.

    Examples
    --------
    >>> repeats(np.array([[1, 1], [2, 2], [1, 1], [1, 5]], "u8"))
    array([[2, 0]])
    """
    order = np.lexsort((prints[:, 1], prints[:, 0]))  # stable: rows of one group stay in order
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (prints[order[1:]] != prints[order[:-1]]).any(axis=1)
    earliest = order[begins][np.cumsum(begins) - 1]
    pairs = np.stack((order, earliest), axis=1)[~begins]
    return pairs[np.argsort(pairs[:, 0])]
