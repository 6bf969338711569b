"""Compute the parts of a split: by range, by groups, or with equal shares of each class.

Results are ranges, or the number of the part of each row, with -1 for rows in no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.errors import ArgumentError, EmptyError
from oocdata.stretches import counted, first_places, looked_up, numbered, sorted_positions

if TYPE_CHECKING:
    from fractions import Fraction

_ROUNDING = 1e-6
"""Tolerance within which a share of rows is a whole number."""


def shares(sizes: Sequence[float | Fraction], length: int, dropped: str = "") -> list[Fraction]:
    """Return sizes, fractions or counts, as checked exact fractions of `length`.

    `dropped` explains in error messages why `length` is less than the total.
    """
    from fractions import Fraction  # with decimal behind it, only here

    whole = all(isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes)
    floats = all(isinstance(size, float | np.floating | Fraction) for size in sizes)
    if not sizes or not (whole or floats) or not all(0 < size < math.inf for size in sizes):
        raise ArgumentError(
            "`sizes` must be positive, all fractions (floats) or all counts (ints); got "
            f"{tuple(sizes)}. Write 1.0 for the fraction, and sizes one by one: split(0.8, 0.2)."
        )
    # Convert the decimal text, so that 0.7 + 0.2 + 0.1 is 1, and a float32 of 0.6 is 0.6.
    exact = [Fraction(str(size)) for size in sizes]
    most = f"{max(length, 0)}{dropped}" if whole else "1"
    if sum(exact) > (length if whole else 1 + Fraction(1, 10**9)):
        raise ArgumentError(
            f"`sizes` must sum to at most {most}; got {tuple(sizes)}, a sum of "
            f"{float(sum(exact)):g}."
            + (whole * " Several sample axes are split along `axis`, the first.")
        )
    return [size / length for size in exact] if whole else exact


def split_ranges(length: int, sizes: Sequence[float | Fraction], gap: int = 0) -> list[range]:
    """Divide ``range(length)`` into consecutive ranges, with `gap` positions dropped between them.

    Sizes are fractions of the length without the gaps (each > 0, sum ≤ 1), or counts. The ends are
    rounded, so that fractions that sum to 1 use all positions.
    """
    left = length - gap * (len(sizes) - 1)
    dropped = f" ({length} less {gap} dropped between neighbours)" if gap else ""
    parts = shares(sizes, left, dropped)
    ends = [0, *(min(left, round(share * left)) for share in accumulate(parts))]
    if left < 1 or any(end <= start for start, end in pairwise(ends)):
        raise EmptyError(
            f"every part must hold at least one element; got {', '.join(map(str, sizes))} of "
            f"{length}, with {gap} dropped between neighbours, which share no row."
        )
    return [
        range(start + at * gap, end + at * gap) for at, (start, end) in enumerate(pairwise(ends))
    ]


def group_parts(ids: NDArray[Any], fractions: Sequence[float | Fraction], seed: int | None) -> Ints:
    """Return the part of each row, with undivided groups.

    Groups in order of first appearance, or shuffled if there is a seed, are cut at the group
    borders nearest to the requested ends, with at least one group per part. A border is thus off by
    at most half a group, unless there are too few groups; and the parts of adjacent groups are
    ranges.
    """
    found, groups = numbered(ids)
    counts, first = counted(groups, len(found)), first_places(groups, len(found))
    if len(first) < len(fractions):
        raise EmptyError(
            f"`by` must hold a group for each part; got {len(first)} groups for {len(fractions)} "
            "parts."
        )
    order = np.argsort(first if seed is None else _random(np.arange(len(first)), seed, "groups"))
    ends = np.concatenate(([0], np.cumsum(counts[order])))
    nearest = [int(np.abs(ends - float(end * len(ids))).argmin()) for end in accumulate(fractions)]
    parts = np.arange(len(nearest))
    # Number of groups before each border, without one group for each part before.
    extra = np.maximum.accumulate(nearest - parts)
    borders = parts + extra.clip(1, len(first) - len(parts) + 1)
    part_of = np.empty(len(first), np.min_scalar_type(-len(fractions)))
    part_of[order] = np.searchsorted(borders, np.arange(len(first)), side="right")
    part_of[part_of == len(borders)] = -1
    return looked_up(part_of, groups)


def class_parts(labels: NDArray[Any], fractions: Sequence[float | Fraction], seed: int) -> Ints:
    """Return the part of each row, drawn at random with equal shares of each class.

    Counts follow the method of largest remainders (Hamilton): a part gets its exact share of a
    class, rounded up or down. The shortfall of a part is carried over to the next classes, so that
    the parts also have their sizes in total.
    """
    rest = 1 - math.fsum(fractions)
    found, classes = numbered(labels)
    counts = counted(classes, len(found))
    dealt = _apportioned(counts, [*map(float, fractions), rest if rest > 1e-9 else 0.0])
    ends, start = np.cumsum(dealt), 0
    parts = np.empty(len(labels), np.min_scalar_type(-len(fractions)))
    numbers = np.tile(np.append(np.arange(len(fractions)), -1), len(counts))

    def keys_of(rows: Ints) -> NDArray[np.uint64]:
        """Return keys of one sort, by class and then at random."""
        keys = classes[rows].astype(np.uint64) << np.uint64(32)
        keys |= _random(rows, seed, "classes") >> np.uint64(32)
        return keys

    for rows in sorted_positions(len(labels), keys_of):
        stop = start + len(rows)
        parts[rows] = np.repeat(numbers, np.diff(ends.clip(start, stop), prepend=start))
        start = stop
    return parts


def _apportioned(counts: Ints, fractions: Sequence[float]) -> Ints:
    """Return the number of rows of each class in each part, shape (classes, parts)."""
    exact = np.outer(counts, fractions)
    dealt = np.floor(exact + _ROUNDING).astype(np.int64)
    remainders = exact - dealt
    owed = np.zeros(len(fractions))
    for row, count in enumerate(counts):
        # Do not round up a whole share, whatever the shortfall.
        claims = np.where(remainders[row] > _ROUNDING, remainders[row] + owed, -np.inf)
        left = int(count - dealt[row].sum())
        dealt[row, np.argsort(-claims, kind="stable")[:left]] += 1
        owed += exact[row] - dealt[row]
    return dealt


def _random(numbers: Ints, seed: int, purpose: str) -> NDArray[np.uint64]:
    """Return a random key for each number, which is the same in all versions."""
    from oocdata.order.permutation import derive_keys, epoch_key  # not for `import oocdata`

    return derive_keys(epoch_key(seed, 0, purpose), numbers.astype(np.uint64))
