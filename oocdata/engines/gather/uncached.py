"""Decode whole chunks into the output, past the cache, where they would not be found again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.decoding import in_decoding_thread, must_not_wait, run_tasks, scratch
from oocdata.engines.slots import decode_groups

if TYPE_CHECKING:
    from oocdata.engines.chunked import Chunked


def read_uncached(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> bool:
    """Decode the chunks of boxes into the output, each once; copy those that come again.

    Return False if nothing was read: the boxes do not consist of whole chunks, or these are worth
    caching.
    """
    whole = tuple(slice(0, n) for n in array.chunk_shape)
    if not (
        array.cached.outgrows_cache
        and not (np.array(extent.lengths) % array.chunk_lengths).any()
        and not (origins % array.chunk_lengths).any()
        and extent.strides == (1,) * len(extent.strides)
        and out.dtype == array.dtype
        and out[0][whole].flags.c_contiguous
        and not (must_not_wait() or array.storage().is_remote)
    ):
        return False
    counts = (np.array(extent.lengths) // array.chunk_lengths).tolist()
    within = np.indices(counts).reshape(len(counts), -1).T
    begins = within * array.chunk_lengths
    numbers = ((origins // array.chunk_lengths)[:, None] + within) @ array.steps
    numbers = numbers.ravel()
    if not array.cached.seldom_read_again(numbers):
        return False
    chunks, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    regions = [
        tuple(map(slice, at, np.add(at, array.chunk_lengths).tolist())) for at in begins.tolist()
    ]
    boxes = range(len(origins)) if places is None else places.tolist()
    targets = [out[box][region] for box in boxes for region in regions]

    def decode(some: list[int]) -> None:
        with scratch(array.cached.scratch_bytes * len(some)):
            outs = [targets[number] for number in first[some].tolist()]
            array.read_chunks(array.places_of(chunks[some]), outs)

    groups = decode_groups(list(range(len(chunks))), array.cached.nbytes, array.own_threads)
    in_decoding_thread(lambda: run_tasks([partial(decode, group) for group in groups]))
    for number in np.delete(np.arange(len(numbers)), first).tolist():
        targets[number][...] = targets[first[which[number]]]
    return True
