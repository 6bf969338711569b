"""Rows of bytes of unequal length: lines of text, records of a file, pictures as they are encoded.

They lie one after the other in a 1-D array of bytes, and another array says where each begins. Both
are ordinary sources of the other engines, so caching, decoding in threads and noticing that a file
has changed are theirs. An element is a Python ``bytes``, so a batch is an array of objects, which
TensorFlow takes as ``tf.string``.

To give TensorFlow the rows of a run in one ``bytes``, to be cut by ``tf.strings.substr``, is not
worth it: it copies as often (1.1 times as fast of 80 bytes a row, 0.8 of 60 KB). Nor is to give it
them as one message, to be cut by ``tf.io.decode_proto`` (0.95 times as fast of 320 bytes to 60 KB).
Nor is it to read each row straight into its ``bytes``, by ctypes (1.1 times as fast of 100 KB and
of 1 MB, through `to_tf`).

Of the processor's time of ``TFRecordDataset`` in order, in batches of 32, whole passes through
`to_tf` over 60 to 240 MB take 0.9 for records of 1 KB, 1.3 of 10 KB, 1.6 of 100 KB and 1.2 of 1 MB;
of the time that passes 1.2, 1.3, 1.3 and 1.0. By NumPy iteration, with the same checksums, it is
0.4 to 0.6. The rest is TensorFlow's own: its copy of each row, 0.4 ms for a run of batches, and 9
ms to begin a pass (2.5 for its reader), 2 for each function of the pipeline. Neither runs of 4 to
32 MiB, nor one thread that reads, nor a private pool of one thread makes a difference of a tenth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.engines.buffers import empty
from oocdata.engines.ragged import concerned_rows, pieces, read_bounds, read_ragged
from oocdata.engines.source import Source, Storage
from oocdata.errors import SourceError

__all__ = ["OBJECT_BYTES", "ByteRows", "Framing", "largest_rows", "size_counts", "sliced"]

Ints = NDArray[np.int64]

_PIECE = 4 << 20
"""Bytes that are read at a time, unless a row is larger."""

OBJECT_BYTES = 48
"""Of a Python ``bytes`` besides what is in it: 33 and its place in the array, rounded up."""

_SIZES = np.array(sorted(set(np.ceil(2.0 ** (np.arange(4 * 50) / 4)).tolist())), np.int64)
"""Classes of row sizes, the largest of each: four to a power of two."""

_KEPT = (32 << 20) - (8 << 10)
"""Bytes of which malloc keeps twice as many when they are freed, in place of 128 KiB: once it has
freed a block of this size, the largest that counts (``man mallopt``, M_TRIM_THRESHOLD). What is
made for each batch else is memory taken from the kernel each time. Records of 60 KB took through
`to_tf` twice the processor's time (70 us, now 34), of 5 KB 1.3 times, without; with a quarter of
it, batches of 32 of 1 MB took twice (740 us a record, now 410)."""

_MANY = 1 << 14
"""Rows, or bytes of a row."""


Framing = Callable[[NDArray[np.uint8], Ints, Ints], list[bytes]]
"""Returns what of each stored row is delivered: without a line's end, or what frames a record.

Given are the bytes of all rows, and where each begins and ends in them. An error's ``rows`` are the
places of damaged rows among these.
"""


def sliced(stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
    """Return runs of bytes.

    Examples
    --------
    >>> sliced(np.frombuffer(b"abcdef", np.uint8), np.array([0, 3]), np.array([2, 6]))
    [b'ab', b'def']
    """
    memory = stored.data
    runs = zip(starts.tolist(), stops.tolist(), strict=True)
    return [memory[start:stop].tobytes() for start, stop in runs]


class ByteRows:
    """Rows of bytes of unequal length; a `oocdata.engines.source.Source` of objects.

    Parameters
    ----------
    values : Source
        uint8, of one axis.
    offsets : Source
        int64, of one axis: where each row begins in `values`, and where the last one ends.
    framing : Framing
        A function of a module: it is sent to other processes.
    storage : Storage
        How the rows are stored, with their `row_sizes`.

    Attributes
    ----------
    shape : tuple of int
        ``(rows,)``.
    dtype : numpy.dtype
        Of objects, each a ``bytes``.
    """

    def __init__(self, values: Source, offsets: Source, framing: Framing, storage: Storage) -> None:
        self.values, self.offsets, self.framing = values, offsets, framing
        self._storage = storage
        self.shape = (max(0, offsets.shape[0] - 1),)
        self.dtype = np.dtype(object)
        np.empty(_KEPT, np.uint8)  # and freed

    def __reduce__(self) -> Any:
        return ByteRows, (self.values, self.offsets, self.framing, self._storage)

    def storage(self) -> Storage:
        """Return how the rows are stored."""
        return self._storage

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        rows = (origins + np.arange(extent.lengths[0]) * extent.strides[0]).ravel()
        found = np.empty(len(rows), object)
        try:
            starts, stops = read_bounds(self.offsets, rows, self.values.shape[0])
        except SourceError as error:
            error.path, error.key = self._storage.path, self._storage.key
            raise
        for some in pieces(stops - starts, _PIECE):
            found[some] = self._bytes(rows[some], starts[some], stops[some])
        out[...] = found.reshape(out.shape)

    def _bytes(self, rows: Ints, starts: Ints, stops: Ints) -> list[bytes]:
        """Return rows by where they lie."""
        lengths = stops - starts
        ends = np.cumsum(lengths)
        nbytes = int(ends[-1])
        try:
            # Of one size for batches of about as many bytes, so that it is recycled.
            memory = empty((1 << nbytes.bit_length(),), np.uint8)[:nbytes]
            read_ragged(self.values, starts, lengths, memory)
        except SourceError as error:
            error.concern(concerned_rows(error, rows, starts, stops))
            raise
        try:
            return self.framing(memory, ends - lengths, ends)
        except SourceError as error:
            error.concern(rows[np.asarray(error.rows, np.int64)])
            error.path, error.key = self._storage.path, self._storage.key
            raise


def size_counts(lengths: Ints) -> Ints:
    """Return how many rows are of each size class: what `Storage.row_sizes` is.

    Examples
    --------
    >>> int(size_counts(np.array([3, 1000, 0])).sum())
    3
    """
    if len(lengths) > _MANY and lengths.max() < _MANY:
        # Rows of one length at once: a tenth of the time of looking each up.
        rows = np.bincount(lengths)
        classes = _SIZES.searchsorted(np.arange(len(rows)))
        return np.bincount(classes, rows, minlength=len(_SIZES)).astype(np.int64)
    return np.bincount(_SIZES.searchsorted(lengths), minlength=len(_SIZES))


def largest_rows(counts: NDArray[Any], rows: int) -> int:
    """Return a bound on the bytes of any so many rows: those of the largest, at most 1.2 times.

    Parameters
    ----------
    counts : ndarray of int64
        From `size_counts`; of several arrays, their sum.
    rows : int
        Of which none is meant twice.

    Examples
    --------
    >>> counts = size_counts(np.array([100, 1000, 10]))
    >>> 1100 <= largest_rows(counts, 2) <= 1320, largest_rows(counts, 9) <= 1332
    (True, True)
    """
    descending = counts[::-1]
    before = np.cumsum(descending) - descending
    taken = np.clip(rows - before, 0, descending)
    return int(taken @ _SIZES[::-1])
