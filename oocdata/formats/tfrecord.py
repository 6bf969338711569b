"""TFRecord: each row is a record, as bytes.

A record is its length (uint64, little-endian), the length's checksum, the bytes, their checksum;
checksums are CRC-32C, masked. Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.byte_rows import ByteRows
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, MissingDependencyError, TruncatedFileError
from oocdata.formats.npy import open_raw
from oocdata.formats.offsets import offsets_of

__all__ = ["Records", "is_tfrecord", "open_tfrecord"]

Ints = NDArray[np.int64]

_HEAD, _TAIL = 12, 4
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")

_BLOCK = 8 << 20
_MANY = 1 << 16


def _masked(data: bytes | memoryview) -> int:
    """Return the masked CRC-32C of bytes."""
    try:
        from google_crc32c import value
    except ImportError as error:
        raise MissingDependencyError(
            "TFRecord needs google-crc32c, which can't be imported here. Install it: "
            'pip install "oocdata[tfrecord]".'
        ) from error
    found: int = value(bytes(data))
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_tfrecord(head: bytes) -> bool:
    """Return whether a file begins with the length of a record and its checksum."""
    if len(head) < _HEAD or _LENGTH.unpack_from(head)[0] >= 1 << 40:
        return False
    try:
        return _masked(head[:8]) == _CHECKSUM.unpack_from(head, 8)[0]
    except MissingDependencyError:
        return False


@dataclass(frozen=True)
class Records:
    """Records without what frames them, each compared with its checksum."""

    def delivered(self, stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
        """Return where records begin and end; see `oocdata.engines.byte_rows.Framing`."""
        firsts, lasts = starts + _HEAD, stops - _TAIL
        memory = memoryview(stored)
        damaged = [
            place
            for place, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True))
            if _masked(memory[first:last]) != _CHECKSUM.unpack_from(memory, last)[0]
        ]
        if damaged:
            raise DamagedChunkError(
                "a record must have the checksum that was written with it; these have another one. "
                "The file was damaged after it was written. Copy it again from where it came from.",
                rows=damaged,
            )
        return firsts, lasts


def open_tfrecord(path: str) -> ByteRows:
    """Open a TFRecord file: a row is a record, as bytes, its checksum compared as it is read.

    Parameters
    ----------
    path : str

    Raises
    ------
    oocdata.errors.TruncatedFileError
        If the file ends within a record.
    oocdata.errors.DamagedChunkError
        If a length is not what its checksum says: nothing after it can be found.

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
    version = FileVersion.of(path)
    offsets, sizes = offsets_of(version, "records", _record_starts)
    storage = Storage(
        "TFRecord",
        version.path,
        layout=f"{offsets.shape[0] - 1} records",
        codec="none",
        stored_bytes=version.nbytes,
        reading="each record by its offset, its checksum compared",
        files=(version,),
        opened={"target": version.path},
        row_sizes=sizes,
    )
    return ByteRows(open_raw(path, dtype="u1", shape=(-1,)), offsets, Records(), storage)


def _record_starts(version: FileVersion) -> Iterator[Ints]:
    """Yield where records begin, and where the last one ends."""
    block, begin, place, row = b"", 0, 0, 0
    found = [0]
    with OpenFile(version).opened() as number:
        version.compare(os.fstat(number))
        while place < version.nbytes:
            if place + _HEAD > begin + len(block):
                block, begin = os.pread(number, _BLOCK, place), place
                if len(block) < _HEAD:
                    raise _cut(version, row)
            at = place - begin
            (length,) = _LENGTH.unpack_from(block, at)
            if _masked(block[at : at + 8]) != _CHECKSUM.unpack_from(block, at + 8)[0]:
                raise DamagedChunkError(
                    "the length of a record must have the checksum that was written with it; this "
                    "one has another, so that no later record can be found. Copy the file again "
                    "from where it came from.",
                    path=version.path,
                    rows=[row],
                )
            place += _HEAD + length + _TAIL
            if place > version.nbytes:
                raise _cut(version, row)
            found.append(place)
            row += 1
            if len(found) == _MANY:
                yield np.array(found)
                found = []
        version.compare(os.fstat(number))
    if found:
        yield np.array(found)


def _cut(version: FileVersion, row: int) -> TruncatedFileError:
    return TruncatedFileError(
        f"the file must end with a whole record; it ends after {version.nbytes} bytes, within one. "
        "Its writer is not done, or it was cut short.",
        path=version.path,
        rows=[row],
    )
