"""Read arrays that are not in a file: in memory, or computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_positions
from oocdata.engines.files import Descriptor, FileVersion
from oocdata.engines.ragged import as_items, copy_runs
from oocdata.engines.source import Storage, WithStorage

_SCRATCH_BYTES = 1 << 20
_STORAGE = Storage(
    format="array in memory",
    layout="contiguous",
    codec="none",
    reading="each box copied into the batch",
)
_COMPUTED = Storage(
    format="numbers of the elements",
    layout="computed",
    codec="none",
    stored_bytes=0,
    reading="computed",
)


class MemoryArray(WithStorage):
    """An array in memory, of any strides and byte order; not copied, so changes to it are read.

    If `storage` names local files, the array was read from them, and they must not have changed.
    `row_source` identifies the rows, if the array is a field of it.
    """

    def __init__(
        self,
        array: NDArray[Any],
        storage: Storage = _STORAGE,
        row_source: MemoryArray | None = None,
    ) -> None:
        self.array, self._storage, self.row_source = array, storage, row_source
        self.shape, self.dtype = array.shape, array.dtype.newbyteorder("=")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "row_source": None}  # not the other fields

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        for version in self._storage.files:
            if isinstance(version, FileVersion):  # objects in stores were compared when fetched
                file = Descriptor(version.path, version)
                file.compare(self._storage.key, covered_positions(origins, extent, 0))
        array = self.array
        same = array.dtype == out.dtype == self.dtype and out.flags.writeable
        if same and array.flags.c_contiguous and out.flags.c_contiguous:
            rows = _whole_rows(array.shape, extent.lengths, extent.strides, array.itemsize)
            if rows is not None:
                # Take rows as opaque items, outside the GIL: rows of 60 KB take 1 / 1.5 of the
                # processor time. `numpy.take` would copy an array that is not contiguous, aligned
                # and native as a whole. With mode="clip" it writes without a buffer.
                count, item, row_steps, within = rows
                numbers = origins.dot(row_steps)
                if len(within) > 1:
                    numbers = (numbers[:, None] + within).ravel()
                items = np.ndarray(count, item, array)
                items.take(numbers, out=np.ndarray(numbers.shape, item, out), mode="clip")
                return
        # A view with each possible box as an element, indexed in blocks that stay in cache. Index
        # with arrays, never with scalars: NumPy converts the dtype of scalars by other rules.
        ends = [n - span + 1 for n, span in zip(array.shape, extent.spans, strict=True)]
        steps = [a * b for a, b in zip(array.strides, extent.strides, strict=True)]
        shape, strides = (*ends, *extent.lengths), (*array.strides, *steps)
        boxes = as_strided(array, shape, strides, writeable=False)
        count = max(1, _SCRATCH_BYTES // (extent.size * array.itemsize))
        for start in range(0, len(origins), count):
            part = origins[start : start + count]
            out[start : start + count] = boxes[tuple(part.T)]

    @property
    def has_runs(self) -> bool:
        array = self.array
        return not self._storage.files and array.dtype == self.dtype and array.flags.c_contiguous

    def read_runs(self, starts: Ints, lengths: Ints, out: NDArray[Any]) -> None:
        targets = np.cumsum(lengths) - lengths
        copy_runs(as_items(self.array), starts, as_items(out), targets, lengths)


@lru_cache(64)
def _whole_rows(
    shape: tuple[int, ...], lengths: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, np.dtype[Any], Ints, Ints] | None:
    """Return the number of rows of an array, the dtype of one, and which of them boxes consist of.

    Steps along each axis from row to row, and the rows of a box, relative to its first. None unless
    boxes are single numbers; or whole along their last axes, have any length along the axis before,
    and length 1 along the others.
    """
    axes = len(shape)
    while axes > 1 and lengths[axes - 1] == shape[axes - 1]:
        axes -= 1
    outer = lengths[:axes] if axes == len(shape) else lengths[: axes - 1]
    if not axes or max(outer, default=1) > 1:
        return None
    steps = [prod(shape[axis + 1 : axes]) if axis < axes else 0 for axis in range(len(shape))]
    item = np.dtype(f"V{prod(shape[axes:]) * itemsize}")
    within = np.arange(lengths[axes - 1]) * strides[axes - 1]
    return prod(shape[:axes]), item, np.array(steps, np.int64), within


@dataclass(frozen=True)
class Numbers:
    """The numbers 0, 1, 2, … as int64."""

    count: int

    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count,)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        out[...] = origins + np.arange(extent.lengths[0]) * extent.strides[0]

    def storage(self) -> Storage:
        return _COMPUTED
