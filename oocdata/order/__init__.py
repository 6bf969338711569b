"""Orders: the sequence in which the positions of an epoch are visited.

An order is a frozen, picklable value with one method, the pure function ``positions(count, start,
stop, *, seed, epoch)``. It knows a count and other integers, never storage.

===================  ===========================================================================
`Sequential`         ascending positions
`Shuffle`            a true permutation of all positions, in constant memory
`BlockShuffle`       blocks in random order, positions mixed within a window of several blocks
`Interleave`         several parts at a time, a few consecutive elements from each in turn
===================  ===========================================================================
"""

from __future__ import annotations

from oocdata.order.block import BlockShuffle
from oocdata.order.order import Order, Sequential, Shuffle

__all__ = ["BlockShuffle", "Order", "Sequential", "Shuffle"]
