"""Orders: the sequence in which the positions of an epoch are visited.

An order is a frozen, picklable value with one pure function, ``epoch_order(count, seed, epoch)``.
It knows a count and other integers, never storage.

==========  =====================================================================================
position    number of an element in the dataset
place       number of an element in an epoch: the order returns the position at each place
block       positions that are stored together (`oocdata.blocks`); blocks are numbered as stored
slot        number of an element along the blocks as stored, laid end to end
visit       number of a block in the order of an epoch
lane        stretch of the places of an epoch that one rank may read alone
==========  =====================================================================================

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
