"""Where a range of places is cut into parts: fractions or counts, with gaps between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from oocdata.errors import ArgumentError, EmptyError

__all__ = ["split_ranges"]


def split_ranges(length: int, sizes: Sequence[float], gap: int = 0) -> list[range]:
    """Cut ``range(length)`` into consecutive ranges with `gap` places dropped between neighbours.

    Sizes are fractions of what is left after the gaps (each > 0, sum ≤ 1), or counts. The ends of
    fractions are rounded, so fractions that sum to 1 use every place.

    Examples
    --------
    >>> split_ranges(10, (0.6, 0.2, 0.2))
    [range(0, 6), range(6, 8), range(8, 10)]
    >>> split_ranges(10, (4, 4), gap=1)
    [range(0, 4), range(5, 9)]
    """
    from fractions import Fraction  # with decimal behind it, only here

    if not sizes:
        raise ArgumentError("`sizes` must hold at least one fraction or count; got none.")
    counts = [isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes]
    floats = [isinstance(size, float | np.floating | Fraction) for size in sizes]
    if not (all(counts) or all(floats)):
        raise ArgumentError(
            f"`sizes` must be all fractions (floats) or all counts (ints); got {tuple(sizes)}. "
            "Write 1.0 for the fraction."
        )
    if not all(0 < size < math.inf for size in sizes):
        raise ArgumentError(f"`sizes` must be positive; got {tuple(sizes)}.")
    left = length - gap * (len(sizes) - 1)
    if all(counts):
        total = sum(int(size) for size in sizes)
        if total > left:
            raise ArgumentError(
                f"counts must sum to at most {max(left, 0)} ({length} less {gap} dropped between "
                f"neighbours); got {tuple(sizes)}, a sum of {total}."
            )
        lengths = [int(size) for size in sizes]
    else:
        # The decimal that was written, not its binary neighbour: 0.7 + 0.2 + 0.1 must be 1.
        # (str, because a float32 written as 0.6 must be 0.6 too)
        shares = [Fraction(str(size)) for size in sizes]
        if sum(shares) > 1 + Fraction(1, 10**9):
            raise ArgumentError(
                f"fractions must sum to at most 1; got {tuple(sizes)}, a sum of "
                f"{float(sum(shares)):g}."
            )
        ends = [min(left, round(share * left)) for share in accumulate(shares)]
        lengths = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if left < 1 or min(lengths) < 1:
        raise EmptyError(
            f"every part must hold at least one element; got {tuple(sizes)} of {length}"
            + (f" with {gap} dropped between neighbours." if gap else ".")
        )
    ranges, start = [], 0
    for part in lengths:
        ranges.append(range(start, start + part))
        start += part + gap
    return ranges
