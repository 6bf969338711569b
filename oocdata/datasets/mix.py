"""A mixture: datasets of which each gives its share of every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, isfinite, lcm
from typing import Any, Self

import numpy as np

from oocdata.datasets.concat import Concat, checked_parts
from oocdata.datasets.dataset import Dataset
from oocdata.errors import ArgumentError, EmptyError
from oocdata.index import Selection, as_count, is_several
from oocdata.order.mixture import MOST
from oocdata.threads import cached_property

__all__ = ["Mix", "mix"]


@dataclass(frozen=True, eq=False, repr=False)
class Mix(Concat):
    """Datasets of which each gives its share of every batch; made by `oocdata.mix`.

    By position it is its members one after the other.

    Attributes
    ----------
    weights : tuple of int
        The shares, up to a factor.
    length : int or None
        Elements in an epoch, if it was given.
    """

    weights: tuple[int, ...] = ()
    length: int | None = None

    @property
    def shares(self) -> Mix:
        """The mixture itself."""
        return self

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements of each member; those of one follow on those of the one before."""
        return tuple(map(len, self.parts))

    @property
    def alike(self) -> tuple[Any, ...]:
        """What is the same of mixtures that give elements of the same positions."""
        return self.counts, self.weights, self.length

    @property
    def epoch_length(self) -> int:
        """Elements in an epoch: by default as many as come before a member begins anew."""
        each = zip(self.counts, self.weights, strict=True)
        least = min(count * sum(self.weights) // weight for count, weight in each)
        return least if self.length is None else self.length

    def _select(self, positions: Selection) -> Any:
        found = self._by_parts(positions)
        if found is None:
            raise ArgumentError(
                "elements of a mixture must be selected in ascending order, each once. Select from "
                "its members, and mix these."
            )
        filled = [part for part in found if len(part)]
        if len(filled) == 1:  # of one member alone, e.g. to see how it is stored
            return filled[0]
        if 0 < len(filled) < len(found):
            raise EmptyError(
                f"each of the {len(found)} members of a mixture must keep an element; of member "
                f"{[len(part) for part in found].index(0)} none is left. Mix those that are left."
            )
        return self._of(found)

    def split(self, *sizes: float, **options: Any) -> tuple[Self, ...]:
        """Split each member, and mix the parts with the same shares; see `Dataset.split`."""
        given = [name for name in ("by", "stratify", "seed") if options.get(name) is not None]
        if given:
            raise ArgumentError(
                f"`{given[0]}` must be given to each member of a mixture, which has rows of its "
                "own. Split the members, and mix their parts."
            )
        parts = [part.split(*sizes, **options) for part in self.parts]
        made = tuple(self._of(found) for found in zip(*parts, strict=True))
        self._check_shared(lambda: [part._all_rows() for part in made])
        return made

    def shard(self, num_shards: int, index: int) -> Self:
        """Return a part of each member, mixed with the same shares; see `Dataset.shard`."""
        return self._of([part.shard(num_shards, index) for part in self.parts])

    def patches(self, *args: Any, **options: Any) -> Any:
        """Return the mixture of the members' patches; see `Dataset.patches`."""
        return self._of([part.patches(*args, **options) for part in self.parts])

    def _of(self, members: Sequence[Any]) -> Self:
        chosen, length = range(sum(map(len, members))), self.length
        if length is not None:  # of a part the same part
            length = max(1, length * len(chosen) // max(1, len(self)))
        return replace(self, parts=tuple(members), chosen=chosen, length=length)


def mix(
    members: Mapping[Dataset, float] | Sequence[tuple[Dataset, float]],
    *,
    length: int | None = None,
) -> Mix:
    """Mix datasets: each gives its share of every batch.

    After any number of batches each member has given its share of their elements, to within half an
    element of two members; of more, to within two elements, or four where chunks are shuffled in
    lanes for several ranks. Each goes through its own elements in an order of its own,
    by its own chunks, and begins anew when it is through: until then none of its elements is lost
    or comes again. So a member may last for many epochs of the mixture, or be repeated within one.

    Parameters
    ----------
    members : dict or sequence of (Dataset, weight)
        Datasets of one spec, as for `concat`. Of the weights the ratios count.
    length : int, optional
        Elements in an epoch. By default as many as come before any member begins anew, which the
        member sets that is the smallest for its share. An epoch has whole batches only; what they
        leave comes with the next epoch.

    Returns
    -------
    Mix
        By position, and for ``len``, it is the members one after the other. ``split`` and ``shard``
        do so to each member, and mix the parts; of a `length` each part has its part.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there are no members, the specs differ, or a weight is not positive.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> real, made = ooc.open(np.arange(100)), ooc.open(np.arange(1000, 1020))
    >>> loader = ooc.mix({real: 0.7, made: 0.3}).batches(10)
    >>> len(loader), loader.batch(1)
    (6, array([   7, 1003,    8,    9,   10, 1004,   11,   12, 1005,   13]))
    """
    several = is_several(members) and not isinstance(members, Dataset)
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
    given = None if length is None else as_count("length", length)
    return Mix(parts, range(sum(map(len, parts))), _whole([w for _, w in pairs]), given)


def _whole(weights: list[Any]) -> tuple[int, ...]:
    """Return weights as whole numbers: the decimals that were written, not their binary neighbours.

    Examples
    --------
    >>> _whole([0.7, 0.3]), _whole([1, 2.5])
    ((7, 3), (2, 5))
    """
    from fractions import Fraction  # with decimal behind it, only here

    try:
        good = all(
            not isinstance(w, bool | np.bool_ | str) and isfinite(w) and w > 0 for w in weights
        )
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ArgumentError(
            f"weights must be positive numbers; got {weights}. Leave out what gives nothing."
        )
    shares = [Fraction(w) if isinstance(w, int | Fraction) else Fraction(str(w)) for w in weights]
    scale = lcm(*(share.denominator for share in shares))
    found = [int(share * scale) for share in shares]
    if sum(found) > MOST * min(found):
        raise ArgumentError(
            f"weights must be at least 1 / {MOST:.0e} of their sum, or a member would never give "
            f"an element; got {weights}. Leave out what gives nothing."
        )
    return tuple(number // gcd(*found) for number in found)
