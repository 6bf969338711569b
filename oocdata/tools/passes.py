"""One pass over an array in blocks of rows, with a bound on memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from oocdata.blocks import Blocks

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from oocdata.datasets.view import View

__all__ = ["block_rows", "blocks"]

BLOCK_BYTES = 16 * 2**20
"""Of a block, unless one row or one chunk of rows is larger."""


def block_rows(view: View, nbytes: int = BLOCK_BYTES) -> int:
    """Return how many rows are read at a time: whole chunks, of about `nbytes` together.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> block_rows(ooc.open(np.zeros((100, 256), "f4")), nbytes=10_240)
    10
    """
    row_bytes = max(1, view.spec.nbytes)
    rows = max(1, nbytes // row_bytes)
    blocks = view.blocks
    chunk = blocks.length if isinstance(blocks, Blocks) else 1
    if rows > chunk:
        rows -= rows % chunk
    return min(rows, max(1, len(view)))


def blocks(view: View, nbytes: int = BLOCK_BYTES) -> Iterator[tuple[int, NDArray[Any]]]:
    """Read an array once from its first row to its last.

    Blocks are read ahead in threads, and each is memory of its own: it may be kept, and changed.

    Parameters
    ----------
    view : View
    nbytes : int
        About as many bytes are in a block; at least a row.

    Yields
    ------
    (int, ndarray)
        Position of the first row, and rows.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> [(first, len(rows)) for first, rows in blocks(ooc.open(np.arange(10)), nbytes=32)]
    [(0, 4), (4, 4), (8, 2)]
    """
    if not len(view):
        return
    rows = block_rows(view, nbytes)
    batches = cast("Generator[NDArray[Any]]", view.batches(rows).epoch(0))
    with closing(batches):
        for number, batch in enumerate(batches):
            yield number * rows, batch
