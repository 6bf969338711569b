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

__all__ = ["read_uncached", "suits_uncached"]


def suits_uncached(array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any]) -> bool:
    """Return whether boxes consist of whole chunks that are not worth caching."""
    first = tuple(slice(0, n) for n in array.chunk_shape)
    return (
        array.cached.outgrows_cache
        and not (np.array(extent.lengths) % array.chunk_lengths).any()
        and not (origins % array.chunk_lengths).any()
        and extent.strides == (1,) * len(extent.strides)
        and out.dtype == array.dtype
        and out[0][first].flags.c_contiguous
        and not (must_not_wait() or array.storage().is_remote)
        and array.cached.seldom_read_again(_chunks_of(array, origins, extent) @ array.steps)
    )


def read_uncached(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Decode the chunks of boxes into the output, each once; copy those that come again."""
    grid = _chunks_of(array, origins, extent)
    _, first, which = np.unique(grid @ array.steps, return_index=True, return_inverse=True)
    boxes = np.arange(len(origins)) if places is None else places
    each = len(grid) // len(origins)
    begins = (grid[:each] - grid[0]) * array.chunk_lengths
    regions = [
        tuple(map(slice, at, np.add(at, array.chunk_lengths).tolist())) for at in begins.tolist()
    ]
    targets = [out[box][region] for box in boxes.tolist() for region in regions]

    def decode(numbers: list[int]) -> None:
        with scratch(array.cached.scratch_bytes * len(numbers)):
            array.read_chunks(grid[numbers], [targets[number] for number in numbers])

    groups = decode_groups(first.tolist(), array.cached.nbytes, array.own_threads)
    in_decoding_thread(lambda: run_tasks([partial(decode, group) for group in groups]))
    for number in np.delete(np.arange(len(grid)), first).tolist():
        targets[number][...] = targets[first[which[number]]]


def _chunks_of(array: Chunked, origins: Ints, extent: Extent) -> Ints:
    """Return the places in the grid of all chunks of boxes that consist of whole chunks."""
    counts = (np.array(extent.lengths) // array.chunk_lengths).tolist()
    within = np.indices(counts).reshape(len(counts), -1).T
    places: Ints = (origins[:, None] // array.chunk_lengths + within).reshape(-1, len(counts))
    return places
