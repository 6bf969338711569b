"""Blocks in the order in which one epoch visits them, laid end to end.

A *visit* counts blocks in the order in which they are visited. A *slot* counts positions along the
visited blocks laid end to end. `Visits` goes from one to the other and to positions of the dataset:
in closed form and constant memory for `Blocks`, by a table for `BlockIds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import BlockIds, Blocks
from oocdata.order.permutation import derive_keys, epoch_key, forward

__all__ = ["Groups", "RegularVisits", "TableVisits", "Visits"]

Ints = NDArray[np.int64]


class Visits(Protocol):
    """The visits of one epoch.

    Attributes
    ----------
    number : int
        How many there are.
    """

    @property
    def number(self) -> int:
        """How many there are."""
        ...

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of each visit; of the visit after the last one, the count."""
        ...

    def visits_of(self, slots: Ints) -> Ints:
        """Return the visit that each slot belongs to."""
        ...

    def begins_of(self, visits: Ints) -> Ints:
        """Return where the block of each visit begins, as `positions` takes it."""
        ...

    def positions(self, begins: Ints, offsets: Ints) -> Ints:
        """Return the positions of the dataset at offsets in blocks."""
        ...


@dataclass(frozen=True, slots=True)
class _Round:
    """The visits of one stretch: the places of its short blocks among the full ones.

    Attributes
    ----------
    length : int
        Positions of the stretch.
    block, full : int
        Positions in a full block, and how many of them there are.
    first, last : int
        Positions in the short first and the short last block; 0 where there is none.
    first_at, last_at : int
        Their places among the visits of the round; the number of visits where there is none.
    """

    length: int
    block: int
    full: int
    first: int
    last: int
    first_at: int
    last_at: int

    @classmethod
    def of(cls, length: int, block: int, first: int, draws: Ints) -> _Round:
        """Return the round of a stretch, its short blocks at places taken from two draws."""
        first = first if first < block and first <= length else 0
        full, last = divmod(length - first, block)
        visits = full + bool(first) + bool(last)
        first_at, last_at = visits, visits
        if first:
            first_at = int(draws[0]) % visits
        if last:
            last_at = int(draws[1]) % (visits - bool(first))
            last_at += bool(first) and last_at >= first_at
        return cls(length, block, full, first, last, first_at, last_at)

    @property
    def visits(self) -> int:
        """How many blocks there are."""
        return self.full + bool(self.first) + bool(self.last)

    @property
    def _short(self) -> list[tuple[int, int]]:
        """The places of the short blocks, ascending, each with the positions that it lacks."""
        short = [(self.first_at, self.block - self.first)] if self.first else []
        return sorted([*short, (self.last_at, self.block - self.last)] if self.last else short)

    def slots_of(self, places: Ints) -> Ints:
        """Return where the blocks at places of the round begin."""
        slots = places * self.block
        for short, lack in self._short:
            slots -= (places > short) * np.int64(lack)
        return slots

    def places_of(self, slots: Ints) -> Ints:
        """Return the place of the block that each slot of the round belongs to."""
        # As if no block were short: what a short one lacks is added to all that comes after it.
        full, lacking = slots.copy(), 0
        for short, lack in self._short:
            lacking += lack
            full += (slots >= (short + 1) * self.block - lacking) * np.int64(lack)
        return full // self.block

    def full_before(self, places: Ints) -> Ints:
        """Return how many full blocks stand before places of the round."""
        before = places - (places > self.first_at)
        before -= places > self.last_at
        return before


class RegularVisits:
    """The visits of `Blocks`, in closed form.

    Visits go in rounds of one stretch's blocks. All rounds have the short first and the short last
    block at the same two places, drawn for the epoch. All first blocks are permuted among
    themselves, all last ones and all full ones. If the last stretch is cut short, its round has
    a length of its own, and comes at a place among the others that is drawn as well.

    Parameters
    ----------
    blocks : Blocks
    count : int
        Positions, at least 1.
    seed, epoch : int

    Examples
    --------
    >>> visits = RegularVisits(Blocks(4, 2), 11, seed=7, epoch=0)
    >>> visits.slots_of(np.arange(visits.number + 1))
    array([ 0,  4,  6,  7, 11])
    >>> visits.begins_of(np.arange(visits.number))
    array([ 2,  0, 10,  6])
    """

    def __init__(self, blocks: Blocks, count: int, seed: int, epoch: int) -> None:
        period = count if blocks.period is None else min(blocks.period, count)
        self._keys = [epoch_key(seed, epoch, kind) for kind in ("blocks", "first", "last")]
        draws = derive_keys(epoch_key(seed, epoch, "rounds"), np.arange(5, dtype=np.uint64))
        draw = (draws >> np.uint64(1)).view(np.int64)
        self._rounds, rest = divmod(count, period)
        block, first = min(blocks.length, period), min(blocks.first, period)
        self._each = _Round.of(period, block, first, draw[:2])
        self._rest = _Round.of(rest, block, first, draw[2:4])
        self._rest_at = int(draw[4]) % (self._rounds + 1)
        self.number = self._rounds * self._each.visits + self._rest.visits

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of each visit; of the visit after the last one, the count."""
        rounds, places, in_rest = self._split(visits, self._each.visits, self._rest.visits)
        slots = rounds * self._each.length + self._each.slots_of(places)
        if in_rest is not None:
            slots += (rounds >= self._rest_at) * np.int64(self._rest.length)
            begin = self._rest_at * self._each.length
            slots[in_rest] = begin + self._rest.slots_of(places[in_rest])
        return slots

    def visits_of(self, slots: Ints) -> Ints:
        """Return the visit that each slot belongs to."""
        rounds, offsets, in_rest = self._split(slots, self._each.length, self._rest.length)
        visits = rounds * self._each.visits + self._each.places_of(offsets)
        if in_rest is not None:
            visits += (rounds >= self._rest_at) * np.int64(self._rest.visits)
            begin = self._rest_at * self._each.visits
            visits[in_rest] = begin + self._rest.places_of(offsets[in_rest])
        return visits

    def begins_of(self, visits: Ints) -> Ints:
        """Return the first position of the block of each visit."""
        rounds, places, in_rest = self._split(visits, self._each.visits, self._rest.visits)
        begins = np.empty_like(visits)
        if in_rest is None:
            self._place(self._each, rounds, places, begins, slice(None))
            return begins
        self._place(self._each, rounds, places, begins, np.flatnonzero(~in_rest))
        self._place(self._rest, rounds, places, begins, np.flatnonzero(in_rest))
        return begins

    def positions(self, begins: Ints, offsets: Ints) -> Ints:
        """Return the positions of the dataset at offsets in blocks."""
        return begins + offsets

    def _split(
        self, numbers: Ints, each: int, rest: int
    ) -> tuple[Ints, Ints, NDArray[np.bool_] | None]:
        """Return the round of each number, its offset in the round, and whether that is the rest's.

        Rounds are counted without that of the cut stretch, which has the number of the next one.
        """
        if not rest:
            rounds = numbers // each
            return rounds, numbers - rounds * each, None
        begin = self._rest_at * each
        after = numbers >= begin + rest
        in_rest = (numbers >= begin) ^ after
        rounds = (numbers - after * np.int64(rest)) // each
        rounds[in_rest] = self._rest_at
        offsets = numbers - rounds * each
        offsets -= after * np.int64(rest)
        return rounds, offsets, in_rest

    def _place(
        self, kind: _Round, rounds: Ints, places: Ints, begins: Ints, part: slice | Ints
    ) -> None:
        """Write the first positions of the blocks at places in rounds of one kind."""
        rounds, places = rounds[part], places[part]
        each, rest = self._each, self._rest
        # The round of the cut stretch counts among those before the ones that come after it.
        after = (rounds >= self._rest_at) if kind is each else np.zeros(len(rounds), np.bool_)
        found = np.empty_like(places)

        is_first, is_last = places == kind.first_at, places == kind.last_at
        full = np.flatnonzero(~(is_first | is_last))
        if full.size:
            numbers = rounds[full] * each.full + kind.full_before(places[full])
            numbers += after[full] * np.int64(rest.full)
            number = self._permuted(numbers, self._rounds * each.full + rest.full, 0)
            stretch = np.minimum(number // max(1, each.full), self._rounds)
            found[full] = stretch * each.length + each.first
            found[full] += (number - stretch * each.full) * each.block
        first = np.flatnonzero(is_first)
        if first.size:
            numbers = rounds[first] + (after[first] & bool(rest.first))
            total = self._rounds * bool(each.first) + bool(rest.first)
            found[first] = self._permuted(numbers, total, 1) * each.length
        last = np.flatnonzero(is_last)
        if last.size and kind is each:
            stretch = self._permuted(rounds[last], self._rounds, 2)
            found[last] = (stretch + 1) * each.length - each.last
        elif last.size:
            found[last] = self._rounds * each.length + rest.length - rest.last
        begins[part] = found

    def _permuted(self, numbers: Ints, size: int, kind: int) -> Ints:
        return forward(numbers.view(np.uint64), size, self._keys[kind]).view(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Positions sorted by the block they lie in.

    Attributes
    ----------
    positions : ndarray of int32 or int64, shape (count,)
        Those of one block after those of another, each block's ascending.
    starts : ndarray of int64, shape (blocks + 1,)
        Where each block begins among them; at last, the count.
    """

    positions: NDArray[np.signedinteger]
    starts: Ints

    @classmethod
    def of(cls, blocks: BlockIds) -> Groups:
        """Sort the positions of blocks by the ids.

        Examples
        --------
        >>> groups = Groups.of(BlockIds(np.array([7, 3, 7, 7])))
        >>> groups.positions.tolist(), groups.starts.tolist()
        ([1, 0, 2, 3], [0, 1, 4])
        """
        positions = np.argsort(blocks.ids, kind="stable")
        ids = blocks.ids[positions]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(ids)) + 1, [len(ids)]))
        small = np.int32 if len(ids) < 2**31 else np.int64  # it is as long as the dataset
        return cls(positions.astype(small, copy=False), starts)


class TableVisits:
    """The visits of `BlockIds`: a table with one entry for each block.

    Examples
    --------
    >>> visits = TableVisits(Groups.of(BlockIds(np.array([7, 3, 7, 7]))), seed=7, epoch=0)
    >>> visits.slots_of(np.arange(3))
    array([0, 1, 4])
    >>> visits.positions(visits.begins_of(np.array([0, 1, 1])), np.array([0, 0, 2]))
    array([1, 0, 3])
    """

    def __init__(self, groups: Groups, seed: int, epoch: int) -> None:
        self.number = len(groups.starts) - 1
        numbers = np.arange(self.number, dtype=np.uint64)
        order = forward(numbers, self.number, epoch_key(seed, epoch, "blocks")).view(np.int64)
        self._groups = groups
        self._begins = groups.starts[order]  # among the sorted positions, by visit
        lengths = groups.starts[order + 1] - self._begins
        self._slots = np.concatenate(([0], np.cumsum(lengths)))

    def slots_of(self, visits: Ints) -> Ints:
        """Return the first slot of each visit; of the visit after the last one, the count."""
        return self._slots[visits]

    def visits_of(self, slots: Ints) -> Ints:
        """Return the visit that each slot belongs to."""
        return np.searchsorted(self._slots, slots, side="right") - 1

    def begins_of(self, visits: Ints) -> Ints:
        """Return where the block of each visit begins among the sorted positions."""
        return self._begins[visits]

    def positions(self, begins: Ints, offsets: Ints) -> Ints:
        """Return the positions of the dataset at offsets in blocks."""
        found: Ints = self._groups.positions[begins + offsets].astype(np.int64, copy=False)
        return found
