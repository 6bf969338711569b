"""Where rows are cut into parts: by range, by groups, with the same shares of each class.

Arithmetic alone. Parts are told as ranges, or as the number of the part that each row is in; -1 is
none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, EmptyError

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["class_parts", "group_parts", "shares", "split_ranges"]

_ROUNDING = 1e-6
"""Less than a share of whole rows, more than what floating point makes of one."""


def shares(sizes: Sequence[float | Fraction], length: int, dropped: str = "") -> list[Fraction]:
    """Return fractions or counts as exact fractions of `length`, checked.

    `dropped` says in messages why `length` is not all.
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
    if all(counts):
        total = sum(int(size) for size in sizes)
        if total > length:
            raise ArgumentError(
                f"counts must sum to at most {max(length, 0)}{dropped}; got {tuple(sizes)}, a sum "
                f"of {total}."
            )
        return [Fraction(int(size), length) for size in sizes]
    # The decimal that was written, not its binary neighbour: 0.7 + 0.2 + 0.1 must be 1.
    # (str, because a float32 written as 0.6 must be 0.6 too)
    found = [Fraction(str(size)) for size in sizes]
    if sum(found) > 1 + Fraction(1, 10**9):
        raise ArgumentError(
            f"fractions must sum to at most 1; got {tuple(sizes)}, a sum of {float(sum(found)):g}."
        )
    return found


def split_ranges(length: int, sizes: Sequence[float | Fraction], gap: int = 0) -> list[range]:
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
    left = length - gap * (len(sizes) - 1)
    dropped = f" ({length} less {gap} dropped between neighbours)" if gap else ""
    parts = shares(sizes, left, dropped)
    ends = [0, *(min(left, round(share * left)) for share in accumulate(parts))]
    if left < 1 or any(end <= start for start, end in pairwise(ends)):
        raise EmptyError(
            f"every part must hold at least one element; got {', '.join(map(str, sizes))} of "
            f"{length}"
            + (f" with {gap} dropped between neighbours, which share no row." if gap else ".")
        )
    return [
        range(start + at * gap, end + at * gap) for at, (start, end) in enumerate(pairwise(ends))
    ]


def group_parts(
    ids: NDArray[Any], sizes: Sequence[float | Fraction], seed: int | None
) -> NDArray[np.int64]:
    """Return the part of each row, whole groups in each.

    The groups, in order of first appearance or with a seed in a random one, are laid end to end and
    cut at the borders between groups that are nearest to the ends asked for, at least one group
    between two. So a border is off by half a group at most, unless groups are fewer than that
    needs; and groups that come side by side make parts that are ranges.

    Examples
    --------
    >>> group_parts(np.array([7, 7, 3, 3, 3, 5]), (0.5, 0.5), None)
    array([0, 0, 1, 1, 1, 1])
    """
    wanted = shares(sizes, len(ids))
    _, first, groups, counts = np.unique(
        ids, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) < len(wanted):
        raise EmptyError(
            f"`by` must hold a group for each part; got {len(first)} groups for {len(wanted)} "
            "parts."
        )
    order = np.argsort(first if seed is None else _random(len(first), seed, "groups"))
    ends = np.concatenate(([0], np.cumsum(counts[order])))
    nearest = [int(np.abs(ends - float(end * len(ids))).argmin()) for end in accumulate(wanted)]
    parts = np.arange(len(nearest))
    before = np.maximum.accumulate(nearest - parts)  # groups besides one for each part before
    borders = parts + before.clip(1, len(first) - len(parts) + 1)
    part_of = np.empty(len(first), np.int64)
    part_of[order] = np.searchsorted(borders, np.arange(len(first)), side="right")
    part_of[part_of == len(borders)] = -1
    return part_of[groups]


def class_parts(
    labels: NDArray[Any], sizes: Sequence[float | Fraction], seed: int
) -> NDArray[np.int64]:
    """Return the part of each row, each class dealt out by the same shares, at random.

    The counts are those of the method of largest remainders (Hamilton): of each class a part gets
    its exact share rounded up or down. What a part got too little of so far counts as remainder for
    the classes that follow, so that parts have their sizes as a whole too.

    Examples
    --------
    >>> parts = class_parts(np.array([0] * 4 + [1] * 6), (0.5, 0.5), 0)
    >>> np.bincount(parts[:4]), np.bincount(parts[4:])
    (array([2, 2]), array([3, 3]))
    """
    wanted = [float(share) for share in shares(sizes, len(labels))]
    rest = 1 - math.fsum(wanted)
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    dealt = _apportioned(counts, [*wanted, rest if rest > 1e-9 else 0.0])
    parts = np.empty(len(labels), np.int64)
    keys = classes.astype(np.uint64) << np.uint64(32)
    keys |= _random(len(labels), seed, "classes") >> np.uint64(32)
    order = np.argsort(keys, kind="stable")  # one sort, by class and then at random
    numbers = np.append(np.arange(len(wanted)), -1)
    parts[order] = np.repeat(np.tile(numbers, len(counts)), dealt.ravel())
    return parts


def _apportioned(counts: NDArray[np.int64], wanted: Sequence[float]) -> NDArray[np.int64]:
    """Return how many of each class each part gets, shape (classes, parts)."""
    exact = np.outer(counts, wanted)
    dealt = np.floor(exact + _ROUNDING).astype(np.int64)
    remainders = exact - dealt
    owed = np.zeros(len(wanted))
    for row, count in enumerate(counts):
        # A share that is whole is not rounded up, whatever is owed.
        claims = np.where(remainders[row] > _ROUNDING, remainders[row] + owed, -np.inf)
        left = int(count - dealt[row].sum())
        dealt[row, np.argsort(-claims, kind="stable")[:left]] += 1
        owed += exact[row] - dealt[row]
    return dealt


def _random(number: int, seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return a random key for each of so many things; the same for ever."""
    from oocdata.order.permutation import derive_keys, epoch_key  # not for `import oocdata`

    return derive_keys(epoch_key(seed, 0, purpose), np.arange(number, dtype=np.uint64))
