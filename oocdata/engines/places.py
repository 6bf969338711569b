"""Boxes that go to places of a batch that lie apart, because others lie in between."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.source import Source

__all__ = ["Scattering", "read_to"]

_SCRATCH_BYTES = 4 << 20


@runtime_checkable
class Scattering(Protocol):
    """A source that writes boxes wherever they go, so that none is copied once more."""

    def read_to(
        self,
        origins: NDArray[np.int64],
        extent: Extent,
        out: NDArray[Any],
        places: NDArray[np.int64],
    ) -> None:
        """Write ``out[places[i]] = the box at origins[i]``; no place twice."""
        ...


def read_to(
    source: Source,
    origins: NDArray[np.int64],
    extent: Extent,
    out: NDArray[Any],
    places: NDArray[np.int64],
) -> None:
    """Write ``out[places[i]] = the box at origins[i]``; `places` ascend."""
    if out.size == 0 or len(places) == 0:
        return
    first, last = int(places[0]), int(places[-1]) + 1
    if last - first == len(places):
        source.read(origins, extent, out[first:last])
        return
    if isinstance(source, Scattering):
        source.read_to(origins, extent, out, places)
        return
    nbytes = extent.size * out.itemsize
    count = max(1, min(len(places), _SCRATCH_BYTES // nbytes))
    scratch = empty((count, *extent.lengths), out.dtype)
    for start in range(0, len(places), count):
        some = places[start : start + count]
        source.read(origins[start : start + count], extent, scratch[: len(some)])
        out[some] = scratch[: len(some)]
