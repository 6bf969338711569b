"""Carrying a conversion out: read ahead in one thread, encode and write in the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.writers.target import Box

__all__ = ["SAVE_BYTES", "BoxReads", "each_box"]

SAVE_BYTES = 256 << 20
"""Bytes of elements after which what was written is saved, and noted."""


class BoxReads(Protocol):
    """What is read by boxes."""

    def read(self, box: Box, out: NDArray[Any]) -> None:
        """Fill `out`, which has the box's shape."""
        ...


def each_box(
    source: BoxReads,
    boxes: Iterable[tuple[int, Box]],
    dtype: np.dtype[Any],
    elements: int,
    consume: Callable[[Box, NDArray[Any]], None],
    saved: Callable[[list[int]], None],
    advance: Callable[[int], None],
) -> None:
    """Read boxes in order, the next one while one is consumed, in two blocks of memory.

    Parameters
    ----------
    source : BoxReads
    boxes : iterable of (int, tuple of slice)
        With their numbers.
    dtype : numpy.dtype
    elements : int
        Of the largest box.
    consume : callable
        Gets a box and its values, which it must not keep.
    saved : callable
        Gets the numbers of the boxes consumed since its last call, about every 256 MiB and at the
        end; not where an error ends it.
    advance : callable
        Gets the bytes of each box that was consumed.
    """
    memory = [np.empty(elements, dtype) for _ in range(2)]
    with ExitStack() as opened:
        ahead = opened.enter_context(ThreadPoolExecutor(1, "oocdata-ahead"))

        def start(turn: int, box: Box) -> tuple[NDArray[Any], Any]:
            shape = [part.stop - part.start for part in box]
            values = memory[turn % 2][: prod(shape)].reshape(shape)
            return values, ahead.submit(source.read, box, values)

        done: list[int] = []
        since = 0
        todo = iter(boxes)
        coming = next(todo, None)
        started = start(0, coming[1]) if coming is not None else None
        turn = 0
        while coming is not None and started is not None:
            (number, box), (values, read) = coming, started
            read.result()
            turn += 1
            coming = next(todo, None)
            started = start(turn, coming[1]) if coming is not None else None
            consume(box, values)
            done.append(number)
            since += values.nbytes
            advance(values.nbytes)
            if since >= SAVE_BYTES:
                saved(done)
                done, since = [], 0
        if done:
            saved(done)
