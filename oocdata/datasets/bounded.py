"""Rows of unequal length, each batch filled up to the least of several lengths that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.composed import room_for, rooms
from oocdata.datasets.dataset import Draw, fields_of
from oocdata.datasets.request import Request
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.unequal import RowsRequest, Unequal
from oocdata.engines.buffers import Read
from oocdata.engines.ragged_rows import Located, inner_shape, read_to

__all__ = ["Bounded"]


@dataclass(frozen=True)
class _BoundedRequest(RowsRequest):
    """Rows wanted of a source of rows of unequal length; fields as those of `Bounded`."""

    bounds: tuple[int, ...]
    value: Any
    is_mask: bool

    @property
    def filling(self) -> str:
        """The lengths, and what is missing; or the lengths of a mask."""
        to = ", ".join(map(str, self.bounds))
        value = np.array(self.value).astype(self.dtype)
        return f"a mask up to {to}" if self.is_mask else f"{value} up to {to}"

    def batches(self, found: Located, lengths: list[int], read: Read) -> list[NDArray[Any]]:
        """Return each batch, filled up to the least length that holds its rows."""
        counts = np.minimum(found.lengths, self.bounds[-1])
        borders = list(pairwise(np.cumsum([0, *lengths]).tolist()))
        most = [counts[start:stop].max(initial=0) for start, stop in borders]
        widths = [self.bounds[at] for at in np.searchsorted(self.bounds, most).tolist()]
        inner = () if self.is_mask else inner_shape(self.source)
        sizes = [rows * width for rows, width in zip(lengths, widths, strict=True)]
        whole, parts = rooms(sizes, inner, self.dtype, read)
        room = len(whole) // len(parts)
        batches: list[NDArray[Any]] = []
        targets = []
        for part, (start, stop), width in zip(parts, borders, widths, strict=True):
            batch = part.reshape(stop - start, width, *inner)
            if self.is_mask:
                np.less(np.arange(width), counts[start:stop, None], out=batch)
            else:
                batch[...] = self.value
            targets.append(np.arange(stop - start) * width + len(batches) * room)
            batches.append(batch)
        if not self.is_mask:  # all rows of all batches at once
            read_to(found, np.zeros_like(counts), counts, whole, np.concatenate(targets))
        return batches


@dataclass(frozen=True, eq=False, repr=False)
class Bounded(Unequal):
    """Rows of unequal length, of one length in each batch; made by `Ragged.pad` and `Ragged.mask`.

    Attributes
    ----------
    bounds : tuple of int
        The lengths that batches may have, ascending. What is beyond the last is left out.
    value : number
        What is missing reads as.
    is_mask : bool
        Whether a batch says where it would hold values, instead of holding them.
    """

    bounds: tuple[int, ...]
    value: Any
    is_mask: bool

    def __repr__(self) -> str:
        return (
            f"<Bounded: {len(self)} rows of {self.spec} up to {', '.join(map(str, self.bounds))}>"
        )

    @cached_property
    def spec(self) -> ArraySpec:
        """Shape and dtype of a row: None for its length, that of the batch."""
        inner = () if self.is_mask else inner_shape(self.source)
        return ArraySpec((None, *inner), self.dtype, "padded")

    def array_bytes(self, elements: int) -> list[int]:
        """Return the bytes of a batch of the last length."""
        return [room_for(elements * self.bounds[-1]) * self.spec.nbytes, 16]

    def input_bytes(self, elements: int) -> int:
        """Return the bytes that the values of several batches are read into first, at most."""
        read = 0 if self.is_mask else self.source.dtype.itemsize
        return elements * self.bounds[-1] * read * (self.spec.nbytes // self.dtype.itemsize)

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[Request, ...]:
        """Return the rows at positions."""
        (one,) = super().requests(positions, draw)
        return (_BoundedRequest(**fields_of(one), **self._own),)

    @property
    def _own(self) -> dict[str, Any]:
        return {"bounds": self.bounds, "value": self.value, "is_mask": self.is_mask}
