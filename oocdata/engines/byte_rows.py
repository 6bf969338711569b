"""Read rows of bytes of unequal length: lines of text, records of a file, encoded pictures.

Rows are consecutive in a 1-D array of bytes, and a second array has their offsets. Both are
ordinary sources of the other engines, which cache, decode in threads and detect changed files. An
element is a Python ``bytes``, so that a batch is an object array, which TensorFlow takes as
``tf.string``. (One ``bytes`` for a run of batches, cut by TensorFlow, is not faster.)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints, covered_rows
from oocdata.engines.buffers import empty
from oocdata.engines.ragged import affected_rows, read_bounds, read_ragged, row_batches
from oocdata.engines.source import Source, Storage, WithStorage
from oocdata.engines.strided import Strided
from oocdata.errors import SourceError

_PIECE = 1 << 20
"""Bytes that are read at a time, unless a row is larger: so they stay in the processor's cache, and
blocks of the pool are reused for shorter reads without being shrunk."""

_DIRECT_PIECE = 4 << 20
"""The same for large rows, of which records are read directly into their ``bytes``."""

OBJECT_BYTES = 48
"""Bytes of a Python ``bytes`` besides its content: 33, and its pointer in the array, rounded up."""

_LARGE = 32 << 10
"""Mean bytes of framed rows from which on each is read directly into its ``bytes``: records of 100
KB take 1 / 1.3 of the processor time through `to_tf`, those of 10 KB as much."""

_CONTENT = bytes.__basicsize__ - 1
"""Position of the content of a ``bytes``, from its address on."""

_new_bytes = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
"""Return a ``bytes`` without content, to be written before anyone else sees it."""

_SIZES = np.array(sorted(set(np.ceil(2.0 ** (np.arange(4 * 50) / 4)).tolist())), np.int64)
"""Size classes of rows, by the largest size of each: four per power of two."""

Framing = Callable[[NDArray[np.uint8], Ints, Ints], list[bytes]]
"""Returns the delivered part of each stored row: without line ends, or a record's framing.

Takes the bytes of all rows, and where each begins and ends in them. The ``rows`` of an error are
the numbers of damaged rows among them."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes around each stored row that are not delivered, `before` and `after` it; a `Framing`.

    `check`, a module-level function, compares rows with the bytes after each, uint8 of shape (n,
    after), and raises a SourceError whose ``rows`` are the numbers of damaged rows.
    """

    before: int
    after: int
    check: Callable[[list[bytes], NDArray[np.uint8]], None]

    def __call__(self, stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
        rows = sliced(stored, starts + self.before, stops - self.after)
        return self.checked(rows, stored[(stops - self.after)[:, None] + np.arange(self.after)])

    def checked(self, rows: list[bytes], after: NDArray[np.uint8]) -> list[bytes]:
        """Return rows whose check passes."""
        self.check(rows, after)
        return rows


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
        self.values, self.offsets, self.framing = values, offsets, framing
        self._storage = storage
        self.shape = (max(0, offsets.shape[0] - 1),)
        self.dtype = np.dtype(object)

    def __reduce__(self) -> Any:
        return ByteRows, (self.values, self.offsets, self.framing, self._storage)

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        rows, stored = covered_rows(origins, extent), self._storage
        most = self.values.shape[0]
        starts, stops = read_bounds(self.offsets, rows, most, stored.path, stored.key)
        lengths = stops - starts
        is_large = lengths.sum() >= _LARGE * len(rows)
        elements = np.empty(len(rows), object)
        for batch in row_batches(lengths, _DIRECT_PIECE if is_large else _PIECE):
            elements[batch] = self._bytes(rows[batch], starts[batch], stops[batch], is_large)
        out[...] = elements.reshape(out.shape)

    def _bytes(self, rows: Ints, starts: Ints, stops: Ints, is_large: bool) -> list[bytes]:
        """Read rows, given by their bounds in `values`."""
        lengths = stops - starts
        frame, values = self.framing, self.values
        try:
            if is_large and isinstance(frame, Frame) and isinstance(values, Strided):
                delivered = _read_direct(values, frame, starts, lengths)
            else:
                delivered = self._read_through(starts, lengths)
        except SourceError as error:
            error.set_rows(affected_rows(error, rows, starts, stops))
            raise
        try:
            return delivered()
        except SourceError as error:
            error.set_rows(rows[np.asarray(error.rows, np.int64)])
            error.path, error.key = self._storage.path, self._storage.key
            raise

    def _read_through(self, starts: Ints, lengths: Ints) -> Callable[[], list[bytes]]:
        """Read rows into recycled memory; return the function that makes ``bytes`` of them."""
        ends = np.cumsum(lengths)
        nbytes = int(ends[-1])
        # Rounded up to a power of two, so that the memory is recycled for similar batches.
        memory = empty((1 << nbytes.bit_length(),), np.uint8)[:nbytes]
        read_ragged(self.values, starts, lengths, memory)
        return partial(self.framing, memory, ends - lengths, ends)


def _read_direct(
    values: Strided, frame: Frame, starts: Ints, lengths: Ints
) -> Callable[[], list[bytes]]:
    """Read framed rows into their ``bytes``; return the function that checks and returns them."""
    contents = lengths - (frame.before + frame.after)
    rows = [_new_bytes(None, length) for length in contents.tolist()]
    after = np.empty((len(rows), frame.after), np.uint8)
    runs = np.empty((3, len(rows), 2), np.int64)
    runs[0] = np.stack([starts + frame.before, starts + lengths - frame.after], axis=1)
    runs[1] = np.stack([contents, np.full_like(contents, frame.after)], axis=1)
    runs[2, :, 0] = np.array(list(map(id, rows))) + _CONTENT
    runs[2, :, 1] = after.ctypes.data + frame.after * np.arange(len(rows))
    begins, counts, addresses = runs.reshape(3, -1)
    values.read_runs(begins, counts, (rows, after), addresses)
    return partial(frame.checked, rows, after)


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
