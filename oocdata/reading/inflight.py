"""How many bytes the batches of a run of steps take, of those that `oocdata.memory` counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocdata.engines.buffers import ALIGNMENT

if TYPE_CHECKING:
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = ["input_bytes", "run_bytes"]


def run_bytes(loader: Loader | Stream, steps: int) -> int:
    """Return the bytes of the batches of a run of steps, with the padding between arrays.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> run_bytes(ooc.open(np.zeros((8, 3), "f4")).batches(4), steps=2)
    128
    """
    return steps * sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in loader.array_bytes)


def input_bytes(loader: Loader | Stream, steps: int = 1) -> int:
    """Return the bytes that a run is read into before its batches are made of them.

    Those that a mapped function gets, and the numbers of sparse rows; 0 if all are read in place.
    """
    return loader.dataset.input_bytes(steps * loader.largest)
