"""A shuffle for compressed chunks: each block is visited within one short stretch of an epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.order.checks import as_first, check_epoch, check_places
from oocdata.order.stretches import positions_by_stretch
from oocdata.order.visits import Visits, visits_of_epoch

__all__ = ["BlockShuffle"]


@dataclass(frozen=True, slots=True)
class BlockShuffle:
    """Blocks in random order, positions mixed within a window of several blocks.

    The positions are cut into blocks: the first of ``first`` positions, all others of ``block``,
    the last perhaps of fewer. Each epoch visits the blocks in an order of its own; ``window``
    blocks visited one after the other form a window, and all positions of a window are permuted.
    A loader that keeps the blocks of one window, then, decodes each block exactly once an epoch.

    No table is kept, whatever the count: which block is visited when, and where in its window a
    position comes, are keyed permutations. At most two blocks, the first and the last, are short;
    the inverse permutation tells when they are visited, and so where every window begins.

    Parameters
    ----------
    block : int
        Positions in a block, at least 1: what storage keeps and decodes together.
    window : int
        Blocks in a window, at least 1. The last window of an epoch may have fewer.
    first : int, optional
        Positions in the first block, from 1 to ``block``, for a dataset that begins in the middle
        of a chunk. By default ``block``.

    Raises
    ------
    ArgumentError
        When an argument is out of its range.

    See Also
    --------
    oocdata.order.mixing.mixing : How well an order mixes, against a full shuffle.

    Examples
    --------
    >>> order = BlockShuffle(block=4, window=2)
    >>> order.positions(20, 0, 20, seed=7, epoch=0)
    array([ 9, 11, 14, 12,  8, 10, 13, 15, 16,  5, 18,  7,  6,  4, 17, 19,  3,
            1,  2,  0])
    >>> order.window_blocks(20, 0, seed=7, epoch=0)
    array([3, 2])
    """

    block: int
    window: int
    first: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "block", as_count("block", self.block))
        object.__setattr__(self, "window", as_count("window", self.window))
        if self.first is not None:
            object.__setattr__(self, "first", as_first(self.first, self.block))

    def positions(
        self, count: int, start: int, stop: int, *, seed: int, epoch: int
    ) -> NDArray[np.int64]:
        """Positions visited at places ``start`` to ``stop - 1``; see `Order.positions`.

        Parameters
        ----------
        count, start, stop : int
            Number of positions (at most ``2**62``), and the range of places.
        seed, epoch : int
            Each pair of them gives an order of its own.

        Returns
        -------
        ndarray of int64, shape (stop - start,)
            The positions in the order of the places.

        Raises
        ------
        ArgumentError
            When the range does not lie in the epoch, or the epoch is negative.
        """
        count, start, stop = check_places(count, start, stop)
        seed, epoch = check_epoch(seed, epoch)
        if start == stop:
            return np.empty(0, dtype=np.int64)
        visits = self._visits(count, seed, epoch)
        return positions_by_stretch(Visits.positions, (visits,), count, start, stop)

    def block_count(self, count: int) -> int:
        """Blocks that ``count`` positions are cut into.

        Parameters
        ----------
        count : int
            Number of positions.

        Returns
        -------
        int
            Number of blocks.

        Examples
        --------
        >>> BlockShuffle(block=4, window=2, first=1).block_count(10)
        4
        """
        count, _, _ = check_places(count, 0, 0)
        first = self.block if self.first is None else self.first
        return 0 if count == 0 else 1 + -(-max(count - first, 0) // self.block)

    def window_count(self, count: int) -> int:
        """Windows in an epoch over ``count`` positions.

        Parameters
        ----------
        count : int
            Number of positions.

        Returns
        -------
        int
            Number of windows.

        Examples
        --------
        >>> BlockShuffle(block=4, window=2, first=1).window_count(10)
        2
        """
        return -(-self.block_count(count) // self.window)

    def block_bounds(
        self, count: int, blocks: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where blocks begin and end.

        Parameters
        ----------
        count : int
            Number of positions.
        blocks : ndarray of int64, shape (n,)
            Numbers of blocks, each in ``range(block_count(count))``.

        Returns
        -------
        starts, stops : ndarray of int64, shape (n,)
            Block ``blocks[i]`` holds positions ``starts[i]`` to ``stops[i] - 1``.

        Examples
        --------
        >>> BlockShuffle(block=4, window=2, first=1).block_bounds(10, np.array([0, 1, 3]))
        (array([0, 1, 9]), array([ 1,  5, 10]))
        """
        count, _, _ = check_places(count, 0, 0)
        # No larger than the count, so that the products stay within 64 bits.
        block = min(self.block, max(count, 1))
        first = min(self.block if self.first is None else self.first, block)
        starts = np.asarray(blocks, dtype=np.int64) * block
        starts -= block - first
        return np.maximum(starts, 0), np.minimum(starts + block, count)

    def window_bounds(self, count: int, window: int, *, seed: int, epoch: int) -> tuple[int, int]:
        """Range of places that a window takes up.

        Parameters
        ----------
        count : int
            Number of positions.
        window : int
            Number of the window, in ``range(window_count(count))``.
        seed, epoch : int
            As in `positions`.

        Returns
        -------
        start, stop : int
            The window's places are ``start`` to ``stop - 1``.

        Raises
        ------
        ArgumentError
            When there is no such window.
        """
        count, window = self._check_window(count, window)
        return self._visits(count, seed, epoch).window_bounds(window)

    def window_at(self, count: int, place: int, *, seed: int, epoch: int) -> int:
        """Window that a place lies in.

        Parameters
        ----------
        count : int
            Number of positions.
        place : int
            Place in the epoch, in ``range(count)``.
        seed, epoch : int
            As in `positions`.

        Returns
        -------
        int
            Number of the window.

        Raises
        ------
        ArgumentError
            When there is no such place.
        """
        place = as_count("place", place, at_least=0)
        count, _, _ = check_places(count, place, place + 1)
        return self._visits(count, seed, epoch).window_at(place)

    def window_blocks(self, count: int, window: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
        """Blocks that a window visits: what to decode, and nothing else, while it lasts.

        Parameters
        ----------
        count : int
            Number of positions.
        window : int
            Number of the window, in ``range(window_count(count))``.
        seed, epoch : int
            As in `positions`.

        Returns
        -------
        ndarray of int64, shape (self.window,), fewer in the last window
            Numbers of the blocks; `block_bounds` gives their positions.

        Raises
        ------
        ArgumentError
            When there is no such window.
        """
        count, window = self._check_window(count, window)
        visits = self._visits(count, seed, epoch)
        return visits.blocks_at(window * self.window, (window + 1) * self.window)

    def _visits(self, count: int, seed: int, epoch: int) -> Visits:
        first = self.block if self.first is None else self.first
        seed, epoch = check_epoch(seed, epoch)
        return visits_of_epoch(
            count, block=self.block, first=first, window=self.window, seed=seed, epoch=epoch
        )

    def _check_window(self, count: int, window: int) -> tuple[int, int]:
        count, _, _ = check_places(count, 0, 0)
        window = as_count("window", window, at_least=0)
        windows = self.window_count(count)
        if window >= windows:
            raise ArgumentError(
                f"`window` must be less than the number of windows ({windows}); got {window}. "
                "Windows are counted from 0."
            )
        return count, window
