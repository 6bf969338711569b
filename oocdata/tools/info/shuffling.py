"""What shuffling an array costs, and what to do about it: the part of `info` that gives advice."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from oocdata import choice
from oocdata.blocks import Blocks
from oocdata.datasets.view import View
from oocdata.explain import size
from oocdata.order import BlockShuffle

__all__ = ["BATCH_SIZE", "Shuffling", "rows_together", "shuffling_of"]

BATCH_SIZE = 32
"""The batch that costs and mixing are worked out for."""

_POOR_MIXING = 0.9
"""Below this share of a full shuffle's batch entropy, batches hold too many neighbours."""

_WINDOW_WANTED = 64
"""Chunks that a block shuffle should mix at a time for batches that differ as they should."""


@dataclass(frozen=True, slots=True)
class Shuffling:
    """What shuffling costs, and what to do about it.

    Attributes
    ----------
    kind : str
        ``"full"`` or ``"block"``: what ``shuffle=True`` chooses.
    full_cost : float
        Rows decoded per row used when all rows are shuffled at random.
    window_rows : int or None
        Rows that a block shuffle mixes at a time.
    entropy, full_entropy : float or None
        Bits of batch entropy, and what a full shuffle reaches.
    advice : tuple of str
        Whole sentences.
    """

    kind: str
    full_cost: float
    window_rows: int | None
    entropy: float | None
    full_entropy: float | None
    advice: tuple[str, ...]


def rows_together(view: View) -> int:
    """Return how many neighbouring rows are decoded together; 1 where each has an address.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> rows_together(ooc.open(np.zeros((100, 3))))
    1
    """
    blocks = view.blocks
    if isinstance(blocks, Blocks):
        return min(blocks.length, max(1, len(view)))
    chunks = view.storage.chunks
    return 1 if chunks is None else max(1, prod(chunks[axis] for axis in view.axes))


def shuffling_of(view: View) -> Shuffling | None:
    """Return what shuffling a view's rows costs; None where there is nothing to read.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> shuffling_of(ooc.open(np.zeros((100, 3)))).kind
    'full'
    """
    if view.nbytes == 0:
        return None
    loader = view.batches(BATCH_SIZE, shuffle=True)
    order, mixed = loader.order, loader.explain().mixing
    full_cost = view.batches(BATCH_SIZE, shuffle="global").explain().amplification
    chunk_rows = rows_together(view)
    advice = []
    window_rows = None
    if isinstance(order, BlockShuffle):
        window_rows = order.elements_mixed(len(view))
        advice.append(
            f"shuffle=True is a block shuffle: {order.blocks_mixed:,} random blocks of "
            f"{chunk_rows:,} rows are mixed at a time, and each chunk is decoded once an epoch, up "
            "to twice for windows, which reach into the next chunk. A full shuffle "
            f'(shuffle="global") would decode about {full_cost:.0f} rows for each row used.'
        )
    elif chunk_rows > 1:
        advice.append(
            f"All decoded chunks ({size(view.nbytes)}) are few enough to be kept: shuffle=True is "
            "a permutation of all rows and decodes each chunk once. If they were not, it would "
            f"decode up to {chunk_rows:,} rows for each row used."
        )
    else:
        advice.append(
            "Each row is addressable: shuffle=True is a permutation of all rows and reads no byte "
            "twice."
        )
    chunk_bytes = chunk_rows * view.spec.nbytes
    if chunk_rows > 1 and chunk_bytes > choice.WINDOW_BYTES // 2:
        advice.append(
            f"The chunks are big: {chunk_rows:,} rows are {size(chunk_bytes)} decoded, so few of "
            f"them are mixed at a time ({size(choice.WINDOW_BYTES)})."
        )
    poor = mixed is not None and mixed.entropy < _POOR_MIXING * mixed.full_shuffle_entropy
    if poor and window_rows is not None:
        fitting = max(1, choice.WINDOW_BYTES // _WINDOW_WANTED // view.spec.nbytes)
        advice.append(
            "Batches then hold neighbours. For well mixed batches store it again with chunks of at "
            f"most {fitting:,} row{'s' if fitting > 1 else ''}."
        )
    advice += _scattered(view)
    return Shuffling(
        kind="full" if window_rows is None else "block",
        full_cost=round(full_cost, 2),
        window_rows=window_rows,
        entropy=None if mixed is None else abs(round(mixed.entropy, 3)),
        full_entropy=None if mixed is None else abs(round(mixed.full_shuffle_entropy, 3)),
        advice=tuple(advice),
    )


def _scattered(view: View) -> list[str]:
    """Return the words for rows whose bytes lie apart (Fortran order, another sample axis)."""
    storage, shape = view.storage, view.source.shape
    if storage.strides is None or len(view) < 2:
        return []
    element = [axis for axis in range(len(shape)) if axis not in view.axes and shape[axis] > 1]
    reach = sum((shape[axis] - 1) * abs(storage.strides[axis]) for axis in element)
    nearest = min(abs(storage.strides[axis]) for axis in view.axes)
    if reach < nearest:
        return []
    spread = size(reach + view.source.dtype.itemsize)
    text = (
        f"The bytes of a row lie apart, spread over {spread} of the file for "
        f"{size(view.spec.nbytes)} of row, so reading is slow. Rows along the axis that varies "
        "slowest in the file are read in one piece; if those are not what you want, store the "
        "array again with the sample axes first, in C order."
    )
    return [text]
