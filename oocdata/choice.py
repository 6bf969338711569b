"""Choose the order that `shuffle` means for a dataset, given how its elements are stored.

The choice depends only on the array's layout and the loader's arguments, never on the memory that
this process may use: a smaller budget decodes chunks more often, and changes no batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from oocdata.blocks import AnyBlocks, Blocks, BlockTable
from oocdata.box import Ints
from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.ids import as_weights
from oocdata.datasets.mix import Mix
from oocdata.engines.source import stored_sources
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import as_bounds
from oocdata.order import BlockShuffle, Order, Sequential, Shuffle
from oocdata.order.block import MOST_LANES
from oocdata.order.bucketed import Bucketed
from oocdata.order.mixture import Mixture
from oocdata.order.weighted import Weighted

WINDOW_BYTES = 128 << 20
"""Decoded bytes of the blocks that a block shuffle mixes: half of the default cache, so that the
last batches of one window are read while the next one begins."""

_LONGEST_RUN = 16
"""Most chunks joined to one block, for windows."""

_FEWEST_RUNS = 8
"""Fewest blocks mixed at a time, unless elements extend over many chunks."""

_PREFERRED_LENGTH = 3
"""Preferred length of a block, as a multiple of the chunks that it shares with its neighbour: then
a third more is decoded. For that, as few as four blocks may be mixed, which mix chunks as well as
more and shorter ones do."""

_FEWEST_OF_ROWS = 4
"""Fewest runs mixed at a time if each row is a chunk; also at least the batch size. With fewer, a
full shuffle is better, although it decodes a row for each window that contains it."""

_LANES_OF_SEVERAL = 8
"""Most lanes of a mixture of more than two members: more lanes make the shares in a batch less
exact."""

_MEMBERS_LISTED = 4
"""Most members of a mixture that the reason lists."""

_PAIRS_COMPARED = 4
"""Pairs of neighbouring blocks that are compared, each by `_ELEMENTS` of their elements."""

_ELEMENTS = 2048


def choose_order(
    dataset: Dataset,
    shuffle: bool | str | Order,
    batch_size: int,
    weights: ArrayLike | Dataset | None = None,
    bucket: Sequence[int] | None = None,
) -> tuple[Order, str]:
    """Return the order that the arguments of `Dataset.batches` mean, and the reason in words."""
    members = dataset.mixture
    options = {"`weights`": weights, "`bucket`": bucket, "a mixture": members}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"{given[0]} must be None with {given[1]}; got both.")
    if bucket is not None:
        return _bucketed(dataset, shuffle, batch_size, bucket)
    if members is not None:
        return _mixture(dataset, members, shuffle, batch_size)
    order, reason = _order_of(dataset, shuffle, batch_size, WINDOW_BYTES)
    return (order, reason) if weights is None else _weighted(dataset, order, reason, weights)


def _weighted(
    dataset: Dataset, order: Order, reason: str, weights: ArrayLike | Dataset
) -> tuple[Order, str]:
    """Return the order that draws elements by weight, and the reason."""
    values = as_weights(weights, len(dataset))
    if isinstance(order, Sequential):
        raise ArgumentError(
            "`shuffle` must not be False with `weights`, which draw at random; equal elements "
            "would follow on one another. Write shuffle=True."
        )
    positive, largest = np.count_nonzero(values), float(values.max())
    most = len(values) * largest / values.sum(dtype=float)
    return Weighted.of(order, values), (
        f"drawn by weight, with replacement: {positive:,} of {len(values):,} elements can come, "
        f"one up to {ceil(most):,} times an epoch; the draws are shuffled, because {reason}"
    )


def _bucketed(
    dataset: Dataset, shuffle: bool | str | Order, batch_size: int, bucket: Sequence[int]
) -> tuple[Order, str]:
    """Return the order that puts elements of similar length into a batch, and the reason."""
    bounds = as_bounds("bucket", bucket)
    lengths = dataset.row_lengths()
    if lengths is None:
        raise ArgumentError(
            f"`bucket` must be None for elements of one length; got {bucket!r} for {dataset!r}. "
            "Rows of unequal length are opened by ooc.ragged."
        )
    if not isinstance(shuffle, bool | np.bool_ | str):
        raise ArgumentError(f"`shuffle` must be a bool or a word with `bucket`; got {shuffle!r}.")
    blocks = BlockTable.of_ids(np.searchsorted(bounds, lengths))
    borders = blocks.starts(np.arange(blocks.number(blocks.count) + 1)).tolist()
    chosen = [
        _order_of(
            dataset._select(blocks.positions(np.arange(*pair))), shuffle, batch_size, WINDOW_BYTES
        )
        for pair in pairwise(borders)
    ]
    order = Bucketed(blocks, tuple(order for order, _ in chosen), batch_size, bool(shuffle))
    sizes = ", ".join(f"{stop - start:,}" for start, stop in pairwise(borders))
    reasons = "; ".join(dict.fromkeys(reason for _, reason in chosen))
    reason = f"elements of like length share batches, in buckets of {sizes}; in each: {reasons}"
    return order, reason


def _mixture(
    dataset: Dataset, members: Mix, shuffle: bool | str | Order, batch_size: int
) -> tuple[Order, str]:
    """Return the order of a mixture, whose members have orders of their own, and the reason."""
    length = members.epoch_length // batch_size * batch_size
    if length == 0:
        raise EmptyError(
            f"`batch_size` must be at most the {members.epoch_length} elements of an epoch, after "
            f"which a member would begin anew; got {batch_size}. Give `length` to `mix` to repeat "
            "it."
        )
    window = WINDOW_BYTES // len(members.counts)
    chosen = [
        _order_of(dataset._select(range(end - count, end)), shuffle, batch_size, window)
        for count, end in zip(members.counts, accumulate(members.counts), strict=True)
    ]
    orders = [order for order, _ in chosen]
    lane_counts = [order.lanes or 1 for order in orders if isinstance(order, BlockShuffle)]
    lanes = min(lane_counts, default=None)
    if lanes is not None:
        lanes = min(lanes, _LANES_OF_SEVERAL) if len(orders) > 2 else lanes
        orders = [
            replace(order, lanes=lanes) if isinstance(order, BlockShuffle) else order
            for order in orders
        ]
    total = sum(members.weights)
    reasons = [
        f"{weight / total:.1%} from {count:,} elements, {length * weight / total / count:.3g} "
        f"times an epoch, because {reason}"
        for (_, reason), count, weight in zip(chosen, members.counts, members.weights, strict=True)
    ]
    if len(reasons) > _MEMBERS_LISTED:
        reasons[_MEMBERS_LISTED:] = [f"and {len(reasons) - _MEMBERS_LISTED} more"]
    mixture = Mixture(tuple(orders), members.counts, members.weights, length, lanes)
    return mixture, "; ".join(reasons)


def _order_of(
    dataset: Dataset, shuffle: bool | str | Order, batch_size: int, window: int
) -> tuple[Order, str]:
    """Return the order that `shuffle` means, and the reason in words.

    A block shuffle mixes blocks of `window` decoded bytes at a time.
    """
    if isinstance(shuffle, np.bool_):
        shuffle = bool(shuffle)
    if isinstance(shuffle, Order):
        shuffle.positions(len(dataset), 0, 0, seed=0, epoch=0)  # raises if the order does not fit
        return _with_lanes(shuffle, len(dataset), batch_size), "you gave it"
    if shuffle is False:
        return Sequential(), "`shuffle` is False"
    # 1 equals True, but is refused: hence `is`.
    if shuffle is not True and not (isinstance(shuffle, str) and shuffle in ("global", "block")):
        raise ArgumentError(
            "`shuffle` must be False, True, 'global', 'block' or an `oocdata.Order`; got "
            f"{shuffle!r}."
        )
    if shuffle == "global":
        return Shuffle(), "you asked for a permutation of all elements"
    blocks, count = dataset.blocks, len(dataset)
    single = shuffle is True and isinstance(blocks, Blocks) and blocks.length == 1
    storages = [source.storage() for source in dataset.sources()] if single else []
    # Chunks whose borders are unknown are not counted.
    decodes = any(each.chunks is not None and each.chunk_bytes is None for each in storages)
    unit, shared = (1, 0) if single and not decodes else _block_bytes(dataset, blocks)
    if single and not shared:
        return Shuffle(), "each row is addressable, so a permutation of all elements costs nothing"
    number = blocks.number(count)
    if shuffle is True and unit * (number + shared) <= window:
        size = max(1, ceil(unit * (number + shared) / 2**20))
        return Shuffle(), (
            f"all chunks together are at most {size} MiB, which the default memory holds"
        )
    units = max(1, window // max(1, unit))
    run = _chunks_in_a_run(shared, units)
    if single:
        run = min(run, units // max(batch_size, _FEWEST_OF_ROWS) - shared)
        if run < 2:
            return Shuffle(), (
                "each row is addressable; neighbours share rows, but the default memory holds too "
                "few to mix runs of neighbours"
            )
    mixed = max(1, min(units // (run + shared), -(-number // run)))
    order = _with_lanes(BlockShuffle(_join_blocks(blocks, run), mixed), count, batch_size)
    together = f" in random runs of {run}" if run > 1 else ""
    subject = f"elements are stored in chunks: those of {mixed * run} blocks"
    if single:
        subject = f"neighbours share chunks: {mixed * run} elements"
    return order, (
        f"{subject} at a time are mixed{together} "
        f"({mixed * (run + shared) * unit / 2**20:.0f} MiB decoded)"
    )


def _with_lanes(order: Order, count: int, batch_size: int) -> Order:
    """Return an order with the lanes that suit a batch size, unless it has lanes already.

    A border between lanes cuts a block, which is then decoded twice: about one block in 64, or one
    in eight if that is needed for up to eight lanes, for ranks. Each lane mixes at least one block.
    """
    if isinstance(order, BlockShuffle) and order.lanes is None:
        blocks = order.blocks.number(count)
        most = min(MOST_LANES, order.blocks_mixed, max(min(8, blocks // 8), blocks // 64))
        lanes = max(
            n for n in (1 << k for k in range(7)) if n <= max(1, most) and batch_size % n == 0
        )
        return replace(order, lanes=lanes)
    if order.lanes is not None and batch_size % order.lanes:
        raise ArgumentError(
            f"`batch_size` must be a multiple of the order's lanes, {order.lanes}; got "
            f"{batch_size}. Without `lanes` the order takes as many as suit."
        )
    return order


def _chunks_in_a_run(shared: int, units: int) -> int:
    """Return how many consecutive chunks make a block.

    One, if no two blocks share a chunk. Shared chunks are decoded for both blocks. So blocks are
    then longer, as long as many of them are still mixed, but not shorter than the part that they
    share.
    """
    if not shared:
        return 1
    enough = min(_PREFERRED_LENGTH * shared, units // 4 - shared)
    mixed = min(_LONGEST_RUN, units // _FEWEST_RUNS - shared)
    return max(1, mixed, enough, min(shared, units // 4))


def _join_blocks(blocks: AnyBlocks, run: int) -> AnyBlocks:
    """Return blocks that each consist of `run` neighbouring blocks."""
    if run == 1:
        return blocks
    if isinstance(blocks, Blocks):
        return Blocks(blocks.length * run, blocks.first)
    return BlockTable(np.append(blocks.begins[:-1:run], blocks.count), blocks.order)


def _block_bytes(dataset: Dataset, blocks: AnyBlocks) -> tuple[int, int]:
    """Return the decoded bytes that a block adds to its neighbour's, and the overlap of both.

    The overlap is in units of the first number, rounded up: the maximum over the blocks compared.
    Blocks overlap because windows extend into the next chunks, files end within a chunk, or a step
    does not divide a chunk.
    """
    unit, most, shared = 0, 0, 0.0
    count, number = len(dataset), blocks.number(len(dataset))
    compared = np.linspace(0, max(0, number - 2), _PAIRS_COMPARED).astype(np.int64)
    for block in np.unique(compared).tolist():
        neighbour = min(block + 1, number - 1)
        first, second = (
            chunks_of(dataset.boxes(_sample_positions(blocks, count, each)))
            for each in (block, neighbour)
        )
        union = sum((first | second).values())
        added = union - sum(first.values())
        most = max(most, union)
        if added:
            unit = max(unit, added)
            shared = max(shared, (sum(second.values()) - added) / added)
    stored = (source.storage() for source in stored_sources(dataset.sources()))
    if any(storage.chunk_bytes is not None for storage in stored):
        shared = max(shared, 1.0)  # chunks end within rows
    unit = unit or most
    if not unit:  # nothing is decoded: the unit is a row
        unit = sum(request.nbytes for request in dataset.boxes(np.zeros(1, np.int64)))
    return max(1, unit), ceil(shared - 0.1)


def _sample_positions(blocks: AnyBlocks, count: int, number: int) -> Ints:
    """Return some positions of a block, including the first and the last."""
    start, stop = blocks.starts(np.array([number, number + 1])).tolist()
    slots = np.linspace(0, min(stop, count) - start - 1, _ELEMENTS).astype(np.int64)
    return blocks.positions(start + np.unique(slots))
