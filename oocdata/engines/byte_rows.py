"""Read rows of bytes of unequal length: lines of text, records of a file, encoded pictures.

Rows are consecutive in a 1-D array of bytes, and a second array has their offsets. Both are
ordinary sources of the other engines, which cache, decode in threads and detect changed files. An
element is a Python ``bytes``, so that a batch is an object array, which TensorFlow takes as
``tf.string``. (One ``bytes`` for a run of batches, cut by TensorFlow, is not faster.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_rows
from oocdata.engines.buffers import empty_rows
from oocdata.engines.ragged import row_batches
from oocdata.engines.ragged_rows import RaggedRows
from oocdata.engines.source import Source, Storage, WithStorage
from oocdata.errors import SourceError

_PIECE = 1 << 20
"""Bytes that are read at a time, unless a row is larger: so they stay in the processor's cache, and
blocks of the pool are reused for shorter reads without being shrunk."""

OBJECT_BYTES = 48
"""Bytes of a Python ``bytes`` besides its content: 33, and its pointer in the array, rounded up."""

_SIZES = np.array(sorted(set(np.ceil(2.0 ** (np.arange(4 * 50) / 4)).tolist())), np.int64)
"""Size classes of rows, by the largest size of each: four per power of two."""

Framing = Callable[[NDArray[np.uint8], Ints, Ints], list[bytes]]
"""Returns the delivered part of each stored row: without line ends, or a record's framing.

Takes the bytes of all rows, and where each begins and ends in them. The ``rows`` of an error are
the numbers of damaged rows among them."""


def sliced(stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
    """Return runs of bytes."""
    memory = stored.data
    runs = zip(starts.tolist(), stops.tolist(), strict=True)
    return [memory[start:stop].tobytes() for start, stop in runs]


class ByteRows(WithStorage):
    """Rows of bytes of unequal length, each a Python ``bytes``; a `Source` of shape ``(rows,)``.

    `values` (uint8) and `offsets` (int64, the position in `values` at which each row begins, and
    the end of the last row) have one axis. `framing` is a module-level function, because it is sent
    to other processes. `storage` has the `row_sizes`.
    """

    def __init__(self, values: Source, offsets: Source, framing: Framing, storage: Storage) -> None:
        self._rows, self._framing, self._storage = RaggedRows(values, offsets), framing, storage
        self.shape = (max(0, offsets.shape[0] - 1),)
        self.dtype = np.dtype(object)

    def __reduce__(self) -> Any:
        return ByteRows, (self._rows.values, self._rows.offsets, self._framing, self._storage)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        rows = covered_rows(origins, extent)
        starts, lengths = self._rows.locate(rows)
        elements = np.empty(len(rows), object)
        for batch in row_batches(lengths, _PIECE):
            elements[batch] = self._bytes(rows[batch], starts[batch], lengths[batch])
        out[...] = elements.reshape(out.shape)

    def _bytes(self, rows: Ints, starts: Ints, lengths: Ints) -> list[bytes]:
        ends = np.cumsum(lengths)
        memory = empty_rows((int(ends[-1]),), np.uint8)
        self._rows.read_rows(rows, starts, lengths, memory, ends - lengths)
        try:
            return self._framing(memory, ends - lengths, ends)
        except SourceError as error:
            error.set_rows(rows[np.asarray(error.rows, np.int64)])
            error.path, error.key = self._storage.path, self._storage.key
            raise


def size_counts(lengths: Ints) -> Ints:
    """Return the number of rows in each size class, for `Storage.row_sizes`."""
    return np.bincount(_SIZES.searchsorted(lengths), minlength=len(_SIZES))


def largest_rows(counts: NDArray[Any], rows: int) -> int:
    """Return an upper bound on the bytes of `rows` different rows, at most 1.2 times the maximum.

    `counts` (int64) is from `size_counts`; for several arrays, the sum.
    """
    descending = counts[::-1]
    before = np.cumsum(descending) - descending
    taken = np.clip(rows - before, 0, descending)
    return int(taken @ _SIZES[::-1])
