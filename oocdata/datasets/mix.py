"""Define `Mix`: a mixture of datasets, each with a share of every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from oocdata.datasets.concat import Concat, checked_parts
from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, is_all, is_iterable
from oocdata.order.mixture import MOST
from oocdata.threads import cached_property


@dataclass(frozen=True, eq=False, repr=False)
class Mix(Concat):
    """Datasets that each contribute a share of every batch; made by `oocdata.mix`.

    By position, a mixture is the concatenation of its members.

    Attributes
    ----------
    weights : tuple of int
        Shares of the members, up to a common factor.
    length : int or None
        Number of elements in an epoch, or None for the default.
    """

    weights: tuple[int, ...] = ()
    length: int | None = None

    @property
    def mixture(self) -> Mix:
        return self

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of elements of each member."""
        return tuple(map(len, self.parts))

    @property
    def epoch_length(self) -> int:
        """Number of elements in an epoch; by default, until the first member is exhausted."""
        if self.length is not None:
            return self.length
        pairs = zip(self.counts, self.weights, strict=True)
        return min(count * sum(self.weights) // weight for count, weight in pairs)

    def _select(self, positions: Selection) -> Any:
        if is_all(positions, len(self)):
            return self
        for part, end in zip(self.parts, self.ends.tolist(), strict=True):
            if isinstance(positions, range) and positions == range(end - len(part), end):
                return part  # a whole member, to see how it is stored
        raise ArgumentError(
            "elements must be selected from the members of a mixture, each of which has a share; "
            f"got {self!r}. Select, split or cut the members, then mix."
        )


def mix(
    members: Mapping[Dataset, float] | Sequence[tuple[Dataset, float]],
    *,
    length: int | None = None,
) -> Mix:
    """Mix datasets, each with a share of every batch.

    After any number of batches, each member has delivered its share of the elements to within half
    an element (two members), two elements (more members), or four (if chunks are shuffled in lanes
    for several ranks). Each member is read in its own order, by its own chunks, and starts again
    when it is exhausted; until then each of its elements is delivered once. So a member may last
    for many epochs of the mixture, or be repeated within one.

    Parameters
    ----------
    members : dict or sequence of (Dataset, weight)
        Datasets with equal specs, as for `concat`, and positive weights, of which only the ratios
        matter.
    length : int, optional
        Number of elements in an epoch. By default as many as are delivered before the first member
        starts again, which is the member that is smallest relative to its share. An epoch has only
        whole batches; the elements left over are delivered in the next epoch.

    Returns
    -------
    Mix
        Its length and positions are those of the concatenated members. Split, select, or cut
        patches of the members, then mix.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there are no members, the specs differ, or a weight is not positive.
    oocdata.errors.EmptyError
        If a member is empty.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> real, made = ooc.open(np.arange(100)), ooc.open(np.arange(1000, 1020))
    >>> loader = ooc.mix({real: 0.7, made: 0.3}).batches(10)
    >>> len(loader), loader.batch(1)
    (6, array([   7, 1003,    8,    9,   10, 1004,   11,   12, 1005,   13]))
    """
    several = is_iterable(members) and not isinstance(members, Dataset)
    pairs = list(members.items() if isinstance(members, Mapping) else members) if several else []
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise ArgumentError(
            f"`members` must be a dict of datasets and weights, or pairs of them; got {members!r}. "
            "Write ooc.mix({one: 0.7, other: 0.3})."
        )
    parts = checked_parts("mix", [part for part, _ in pairs])
    for number, part in enumerate(parts):
        if len(part) == 0:
            raise EmptyError(f"each member must hold an element; member {number} holds none.")
    length = None if length is None else as_count("length", length, at_most=MOST)
    return Mix(parts, range(sum(map(len, parts))), _as_integers([w for _, w in pairs]), length)


def _as_integers(weights: list[Any]) -> tuple[int, ...]:
    """Return weights as integers, converted from their decimal text: [1, 2.5] as (2, 5)."""
    from fractions import Fraction  # with decimal behind it, only here

    try:
        shares = [Fraction("" if isinstance(w, str) else str(w)) for w in weights]
    except ValueError:
        shares = [Fraction(0)]
    if not min(shares) > 0 or sum(shares) > MOST * min(shares):
        raise ArgumentError(
            f"weights must be positive numbers, at least 1 / {MOST:.0e} of their sum; got "
            f"{weights}. Leave out what gives nothing."
        )
    scale = lcm(*(share.denominator for share in shares))
    integers = [int(share * scale) for share in shares]
    return tuple(number // gcd(*integers) for number in integers)
