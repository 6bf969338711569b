"""In which order the positions of an epoch are visited.

An order is a frozen, picklable value with one method: ``positions(count, start, stop, *, seed,
epoch)``, a pure function. It knows a count and integers, never storage.

===================  ===========================================================================
`Sequential`         the order of storage
`Shuffle`            a true permutation of all positions, in constant memory
`BlockShuffle`       blocks in random order, positions mixed within a window of several blocks
`Interleave`         some parts at a time, some neighbours from each in turn
===================  ===========================================================================
"""

from __future__ import annotations

from oocdata.order.block import BlockShuffle
from oocdata.order.order import Order, Sequential, Shuffle

__all__ = ["BlockShuffle", "Order", "Sequential", "Shuffle"]
