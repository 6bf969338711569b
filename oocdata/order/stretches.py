"""Short ranges of places, cut from longer stretches that are remembered.

What an order costs for a few places is the overhead of some seventy array operations, whether
they run on thirty integers or on a thousand. A loader asks for one batch after the other; so the
stretch around the batch is computed once, and the next batches are slices of it. Results are the
same as without: an order is a pure function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["positions_by_stretch"]

Compute: TypeAlias = Callable[..., NDArray[np.int64]]

# A stretch takes twice as long as a single place; all those remembered take up a mebibyte.
_LENGTH = 4096
_REMEMBERED = 32


def positions_by_stretch(
    compute: Compute, arguments: tuple[Any, ...], count: int, start: int, stop: int
) -> NDArray[np.int64]:
    """Compute a range of places, by way of remembered stretches when it is short.

    Parameters
    ----------
    compute : callable
        ``compute(*arguments, start, stop)`` gives the positions at places ``start`` to
        ``stop - 1``; a pure function.
    arguments : tuple
        Hashable.
    count : int
        Number of places in the epoch.
    start, stop : int
        The range of places, within the ``count``.

    Returns
    -------
    ndarray of int64, shape (stop - start,)
        A new array.

    Examples
    --------
    >>> positions_by_stretch(np.arange, (), 5000, 4094, 4099)
    array([4094, 4095, 4096, 4097, 4098])
    """
    if start == stop or stop - start > _LENGTH // 4:
        return compute(*arguments, start, stop)
    first, last = start // _LENGTH, (stop - 1) // _LENGTH
    parts = [_stretch(compute, arguments, count, number) for number in range(first, last + 1)]
    stretch = parts[0] if first == last else np.concatenate(parts)
    return stretch[start - first * _LENGTH : stop - first * _LENGTH].copy()


@lru_cache(maxsize=_REMEMBERED)
def _stretch(
    compute: Compute, arguments: tuple[Any, ...], count: int, number: int
) -> NDArray[np.int64]:
    stop = min((number + 1) * _LENGTH, count)
    return compute(*arguments, number * _LENGTH, stop)
