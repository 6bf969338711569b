"""Copy the piece that each box and chunk share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.copying import copy_reordered
from oocdata.engines.gather.grid import chunk_parts

if TYPE_CHECKING:
    from oocdata.engines.chunked import Chunked

__all__ = ["read_pieces"]


def read_pieces(
    array: Chunked, origins: Ints, extent: Extent, out: NDArray[Any], places: Ints | None
) -> None:
    """Copy the pieces of boxes, for as many chunks at a time as may be pinned."""
    first = (origins // array.chunk_lengths) @ array.steps
    pieces: dict[int, list[Any]] = {}  # by chunk
    targets = range(len(origins)) if places is None else places.tolist()
    for box in np.argsort(first, kind="stable").tolist():
        for number, within, target in _pieces(array, origins[box].tolist(), extent):
            if number not in pieces:
                if len(pieces) == array.cached.most:
                    _copy_pieces(array, pieces, out)
                    pieces = {}
                pieces[number] = []
            pieces[number].append((within, (targets[box], *target)))
    _copy_pieces(array, pieces, out)


def _pieces(
    array: Chunked, origin: list[int], extent: Extent
) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
    """Yield the number of each chunk of a box, and slices of the chunk and of the box."""
    steps = array.steps.tolist()
    axes = zip(origin, extent.lengths, extent.strides, array.chunk_shape, strict=True)
    for parts in product(*[list(chunk_parts(*axis)) for axis in axes]):
        number = sum(part[0] * step for part, step in zip(parts, steps, strict=True))
        yield number, tuple([part[1] for part in parts]), tuple([part[2] for part in parts])


def _copy_pieces(array: Chunked, pieces: dict[int, list[Any]], out: NDArray[Any]) -> None:
    with array.pin(np.array(list(pieces), np.int64)) as pin:
        chunks = array.slots_of(pin.memory)
        for slot, of_chunk in zip(pin.slots.tolist(), pieces.values(), strict=True):
            chunk = chunks[slot]
            for within, target in of_chunk:
                copy_reordered(chunk[within], out[target])
