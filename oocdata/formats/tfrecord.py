"""Open TFRecord files, with a record as a row.

A record consists of its length (uint64, little-endian), a checksum of the length, its bytes, and a
checksum of the bytes. Checksums are masked CRC-32C. Source:
tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.byte_rows import ByteRows, sliced
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, TruncatedFileError
from oocdata.formats.offsets import open_rows

_HEAD, _TAIL = 12, 4

_RECORDS = 1 << 16
"""Records whose heads are read at a time."""


def _masked(*parts: bytes) -> Ints:
    """Return the masked CRC-32C of n parts, shape (n,)."""
    from google_crc32c import value  # not for `import oocdata`

    crc = np.array(list(map(value, parts)), np.int64)
    masked: Ints = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked


def is_tfrecord(head: bytes) -> bool:
    """Return whether a file begins with the length of a record and its checksum."""
    checksum = int.from_bytes(head[8:_HEAD], "little")
    return len(head) >= _HEAD and int(_masked(head[:8])[0]) == checksum


def _records(stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
    """Return records without what is around them; raise if one has another checksum."""
    ends = stops - _TAIL
    records = sliced(stored, starts + _HEAD, ends)
    checksums = stored[ends[:, None] + np.arange(_TAIL)].view("<u4")[:, 0]
    damaged = np.flatnonzero(_masked(*records) != checksums)
    if len(damaged):
        raise DamagedChunkError(
            "a record must have the checksum that was written with it; these have another one. "
            "The file was damaged after it was written. Copy it again from where it came from.",
            rows=damaged,
        )
    return records


def open_tfrecord(path: str) -> ByteRows:
    """Open a TFRecord file whose rows are records, as bytes; reading verifies their checksums.

    Raises `TruncatedFileError` if the file ends within a record, and `DamagedChunkError` if the
    checksum of a length is wrong, so that later records can't be found.

    Examples
    --------
    >>> import tempfile, oocdata as ooc, tensorflow as tf
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with tf.io.TFRecordWriter(f"{folder}/train.tfrecord") as writer:
    ...         for record in (b"first", b"second"):
    ...             writer.write(record)
    ...     ooc.open(f"{folder}/train.tfrecord").take([1, 0])
    array([b'second', b'first'], dtype=object)
    """
    storage = Storage("TFRecord", reading="each record by its offset, its checksum compared")
    return open_rows(path, "records", _record_starts, _records, storage)


def _record_starts(file: IO[bytes]) -> Iterator[Ints]:
    """Yield the offsets of records in blocks, and at last the end of the last record."""
    nbytes, place, row = os.fstat(file.fileno()).st_size, 0, 0
    yield np.zeros(1, np.int64)
    while place < nbytes:
        starts: list[int] = []
        heads: list[bytes] = []
        while place < nbytes and len(starts) < _RECORDS:
            starts.append(place)
            file.seek(place)
            heads.append(file.read(_HEAD))
            place += _HEAD + int.from_bytes(heads[-1][:8], "little") + _TAIL
        _check_heads([head for head in heads if len(head) == _HEAD], row)
        row += len(starts)
        if place > nbytes:
            raise TruncatedFileError(
                f"the file must end with a whole record; it ends after {nbytes} bytes, within one. "
                "Its writer is not done, or it was cut short. To leave out the record, if it is "
                f"not compressed and nothing writes any more: os.truncate(path, {starts[-1]}).",
                rows=[row - 1],
            )
        yield np.array([*starts[1:], place])


def _check_heads(heads: list[bytes], first: int) -> None:
    """Raise if the checksum of a length is wrong; `first` is the row of the first head."""
    checksums = np.frombuffer(b"".join(heads), "<u4").reshape(-1, 3)[:, 2]
    wrong = first + np.flatnonzero(_masked(*(head[:8] for head in heads)) != checksums)
    if len(wrong):
        raise DamagedChunkError(
            "the length of a record must have the checksum that was written with it; this one has "
            "another, so that no later record can be found. Copy the file again from where it came "
            "from; or, if it is no TFRecord, rename it.",
            rows=wrong[:1],
        )
