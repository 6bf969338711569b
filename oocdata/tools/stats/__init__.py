"""Compute the range, mean and deviation of an array of any size, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from oocdata.axes import axes_of, row_axes
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.index import as_axes, as_flag
from oocdata.tools.opening import Opening
from oocdata.tools.passes import Block, each_block, spec_of_one_array
from oocdata.tools.stats.moments import Summary
from oocdata.tools.stats.result import NotableRows, Stats

__all__ = ["NotableRows", "Stats", "constant_rows", "fingerprints", "repeats", "stats"]

MOST_ROWS = 10_000_000
"""Repeats are looked for among up to so many rows: 16 bytes each while reading, then 64."""

_MOST_LISTED = 100
"""Rows that are listed; further ones are only counted."""


def stats(
    target: Any,
    key: str | None = None,
    *,
    channels: int | str | None = "auto",
    progress: bool = False,
) -> Stats:
    """Return count, NaN, range, mean and deviation of an array, per channel and overall.

    Read all rows once, in blocks. Call it on the training part, ``stats(train)``, so that nothing
    of the other parts leaks into the scaling.

    Parameters
    ----------
    target : Dataset, or a path or another target of `oocdata.open`
        A View, or another dataset whose elements are one array. Windows count a row once for each
        window that holds it.
    key : str, optional
        The dataset in the file; for other arguments, give the View that `oocdata.open` returns.
    channels : int, str or None
        The axis of the channels, counted with the axis of rows (1 for NCHW, -1 for NHWC), or its
        name in the file. None: no channels. "auto": by names and lengths, see `oocdata.axes`; each
        column of a table is a channel. The result says which axis was taken, and why.
    progress : bool
        Show a bar on standard error, if that is a terminal.

    Returns
    -------
    Stats
        ``print`` it; `Stats.normalization` is for ``keras.layers.Normalization``,
        `Stats.standardize` for ``map``.

    Raises
    ------
    oocdata.errors.ArgumentError
        If elements are not one array, or there is no such axis.
    oocdata.errors.UnsupportedDtypeError
        If they are not real numbers.
    oocdata.errors.SourceError
        If a row can't be read.

    Notes
    -----
    The statistics are of the finite values; NaN and infinities are counted separately. The
    variance is that of the population (divided by n), as in NumPy and Keras. Sums are in float64,
    see `oocdata.tools.stats.moments`; minimum and maximum of integers are exact.

    Rows with the same bits are found by a hash of 128 bits (XXH3); matches are not verified. Above
    ten million rows they are not looked for, and the result says so.

    Memory: blocks of 8 MiB, or one row, within half of the memory for batches (see
    `oocdata.set_memory`); 16 bytes a row for the hashes, and up to 64 at the end; about a KiB for
    each channel.

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
    source = Opening.of(target, key)
    dataset = source.numbers()
    spec = spec_of_one_array(dataset)
    shape = (len(dataset), *cast("tuple[int, ...]", spec.shape))
    if spec.dtype.kind == "c" or (isinstance(dataset, View) and dataset.unit):
        raise UnsupportedDtypeError(
            "statistics must be of real numbers; these are "
            f"{'complex' if spec.dtype.kind == 'c' else 'dates'}. Convert them in `.map`, e.g. to "
            "magnitudes or to days since the first one."
        )
    axis, reason = _channel_axis(dataset, shape, channels)
    channel_count = 1 if axis is None else shape[axis]
    too_small = spec.nbytes <= spec.dtype.itemsize  # one number is constant, and often repeated
    not_compared = ""
    if too_small:
        not_compared = "a row is one number" if spec.nbytes else "a row holds no number"
    elif len(dataset) > MOST_ROWS:
        not_compared = f"there are more than {MOST_ROWS:,} rows"
    hashes = np.empty((0 if not_compared else len(dataset), 2), np.uint64)

    def summarise(block: Block) -> tuple[Summary, NDArray[np.int64]]:
        values = block.values
        if not not_compared:
            hashes[block.rows.start : block.rows.stop] = fingerprints(values)
        constant = np.empty(0, np.int64) if too_small else constant_rows(values)
        return Summary.of(values, axis), constant + block.rows.start

    by_channel = Summary.empty(channel_count, spec.dtype)
    constant, constant_shown = 0, list[int]()
    label = "reading" if as_flag("progress", progress) else ""
    with closing(each_block(dataset, summarise, label=label)) as blocks:
        for summary, rows in blocks:
            by_channel = Summary.merged([by_channel, summary])
            constant += len(rows)
            constant_shown += rows[: _MOST_LISTED - len(constant_shown)].tolist()
    pairs = repeats(hashes)
    found = NotableRows(
        None if too_small else constant,
        tuple(constant_shown),
        None if not_compared else len(pairs),
        tuple((row, earlier) for row, earlier in pairs[:_MOST_LISTED].tolist()),
        not_compared,
    )
    overall = by_channel if channel_count else Summary.empty(1, by_channel.low.dtype)
    return Stats(
        name=source.name,
        shape=shape,
        dtype=str(spec.dtype),
        axis=axis,
        axis_reason=reason,
        channels=by_channel,
        overall=overall.pooled(),
        rows=found,
        packed=dataset.storage.packed if isinstance(dataset, View) else "",
    )


def _channel_axis(
    dataset: Dataset, shape: tuple[int, ...], channels: int | str | None
) -> tuple[int | None, str]:
    """Return the axis of the channels, counted with the axis of rows, and the reason."""
    if channels is None:
        return None, "as given"
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
                "curve": f"a row of {shape[-1]:,} numbers is taken for a signal",
            }
            return None, words.get(axes.kind, f"the axes of a row are {axes}, {reason}")
        return axes.channel + 1, f"{axes.names[axes.channel]}, {reason}"
    ndim, number = len(shape), channels
    if isinstance(channels, str):
        number = (*axes.names, channels).index(channels) + 1
    found = [] if isinstance(channels, bool) else as_axes([number], ndim)
    if not found or found == [0]:
        names = ", ".join(axes.names)
        choices = f"1 to {ndim - 1}, or {names}" if ndim > 1 else "none: a row is one number"
        raise ArgumentError(
            f"`channels` must be an axis of a row ({choices}), None or 'auto'; got {channels!r} "
            f"for the shape {shape}. Axis 0 is that of the rows."
        )
    return found[0], "as given"


def constant_rows(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows with a single value; NaN equals NaN, and 0.0 equals -0.0."""
    flat = block.reshape(len(block), -1)
    low, high = flat.min(axis=1), flat.max(axis=1)  # NaN if any value is
    is_constant = low == high
    with_nan = np.flatnonzero(low != low)
    is_constant[with_nan] = (flat[with_nan] != flat[with_nan]).all(axis=1)
    return np.flatnonzero(is_constant)


def fingerprints(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a fingerprint of 128 bits for each row, shape (rows, 2).

    It is the row itself, zero-padded, for rows of up to 16 bytes: so `stats` takes 1 / 1.35 of the
    processor time. Otherwise, it is XXH3 (128 bits, seed 0, xxHash 0.8).
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


def repeats(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return pairs of a row and the first row with the same fingerprint, for each repeat."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal rows stay in order
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    first = order[is_first][np.cumsum(is_first) - 1]
    pairs = np.stack((order, first), axis=1)[~is_first]
    return pairs[np.argsort(pairs[:, 0])]
