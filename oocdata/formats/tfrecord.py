"""TFRecord: each row is a record, as bytes.

A record is its length (uint64, little-endian), the length's checksum, the bytes, their checksum;
checksums are CRC-32C, masked. Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.byte_rows import ByteRows, sliced
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, TruncatedFileError, UnknownFormatError
from oocdata.formats.offsets import open_rows

__all__ = ["is_tfrecord", "open_tfrecord"]

Ints = NDArray[np.int64]

_HEAD, _TAIL = 12, 4

_BLOCK = 8 << 20


def _masked(*each: bytes) -> NDArray[np.int64]:
    """Return the masked CRC-32C of bytes, shape (n,)."""
    from google_crc32c import value  # not for `import oocdata`

    found = np.array(list(map(value, each)), np.int64)
    masked: NDArray[np.int64] = ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked


def is_tfrecord(head: bytes) -> bool:
    """Return whether a file begins with the length of a record and its checksum."""
    told = int.from_bytes(head[8:_HEAD], "little")
    return len(head) >= _HEAD and int(_masked(head[:8])[0]) == told


def _records(stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
    """Return the bytes of records, compared with the checksum of each; a `Framing`."""
    records = sliced(stored, starts + _HEAD, stops - _TAIL)
    tails = stored[(stops - _TAIL)[:, None] + np.arange(_TAIL)]
    damaged = np.flatnonzero(_masked(*records) != tails.view("<u4")[:, 0])
    if len(damaged):
        raise DamagedChunkError(
            "a record must have the checksum that was written with it; these have another one. "
            "The file was damaged after it was written. Copy it again from where it came from.",
            rows=damaged,
        )
    return records


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
    described = Storage("TFRecord", reading="each record by its offset, its checksum compared")
    return open_rows(path, "records", _record_starts, _records, described)


def _record_starts(version: FileVersion) -> Iterator[Ints]:
    """Yield where records begin, and where the last one ends."""
    place = row = 0
    yield np.zeros(1, np.int64)
    with OpenFile(version).opened() as number:
        version.compare(os.fstat(number))
        while place < version.nbytes:
            block, begin, found, heads = os.pread(number, _BLOCK, place), place, [], []
            # A record's head lies in the block, or the record begins the next one.
            while place + _HEAD <= begin + len(block):
                head = block[place - begin : place - begin + _HEAD]
                place += _HEAD + int.from_bytes(head[:8], "little") + _TAIL
                found.append(place)
                heads.append(head)
            _check_heads(heads, row, version)
            if not found or place > version.nbytes:
                raise TruncatedFileError(
                    f"the file must end with a whole record; it ends after {version.nbytes} bytes, "
                    "within one. Its writer is not done, or it was cut short.",
                    path=version.path,
                    rows=[row + max(0, len(found) - 1)],
                )
            row += len(found)
            yield np.array(found)
        version.compare(os.fstat(number))


def _check_heads(heads: list[bytes], first: int, version: FileVersion) -> None:
    """Raise if a length is not what its checksum says; `first` is the row of the first head."""
    told = np.frombuffer(b"".join(heads), "<u4").reshape(-1, 3)[:, 2]
    wrong = np.flatnonzero(_masked(*(head[:8] for head in heads)) != told)
    if len(wrong) and not first + int(wrong[0]) and _is_zlib(heads[0]):
        raise UnknownFormatError(
            "a TFRecord file must be plain or compressed by gzip; this one begins as ZLIB's do. "
            'Write it anew with TFRecordOptions(compression_type="GZIP"), or without.',
            path=version.path,
        )
    if len(wrong):
        raise DamagedChunkError(
            "the length of a record must have the checksum that was written with it; this one has "
            "another, so that no later record can be found. Copy the file again from where it came "
            "from.",
            path=version.path,
            rows=[first + int(wrong[0])],
        )


def _is_zlib(head: bytes) -> bool:
    """Return whether bytes begin as a stream of zlib's does (RFC 1950, 2.2)."""
    return head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
