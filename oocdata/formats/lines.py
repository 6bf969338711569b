"""Open text files, with a line as a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.byte_rows import ByteRows, sliced
from oocdata.engines.source import Storage
from oocdata.errors import UnknownFormatError
from oocdata.formats.offsets import open_rows

TEXT_ENDS = (".txt", ".text", ".csv", ".tsv", ".jsonl", ".ndjson", ".log")
"""Endings of the names of text files."""

_BLOCK = 1 << 20
"""Bytes that are scanned at a time. With 8 MiB the offsets of empty lines take 250 MiB, and finding
lines of 6 bytes takes twice the processor's time."""

_NEWLINE, _RETURN = b"\n\r"

_WIDE = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16 and UTF-32, in which a newline byte need not end a line."""


def without_ends(stored: NDArray[np.uint8], starts: Ints, stops: Ints) -> list[bytes]:
    r"""Return lines without ``\n`` or ``\r\n``; `TextLineDataset` also drops every other ``\r``."""
    has_newline = stored[stops - 1] == _NEWLINE  # the last line may have none
    stops = stops - has_newline
    may_have_return = has_newline & (stops > starts)
    return sliced(stored, starts, stops - (may_have_return & (stored[stops - 1] == _RETURN)))


def open_lines(path: str, *, format: str | None = None) -> ByteRows:  # noqa: A002  # as in `open`
    r"""Open a text file whose rows are lines, as bytes without their ending.

    `format` is the argument of `oocdata.open`. Raises `UnknownFormatError` for UTF-16 and UTF-32.
    """
    arguments = {"format": format} if format else {}
    storage = Storage("text", reading="each line by its offset")
    return open_rows(path, "lines", _line_starts, without_ends, storage, **arguments)


def _line_starts(file: IO[bytes]) -> Iterator[Ints]:
    """Yield the offsets of lines in blocks, and at last the end of the last line."""
    place, block = 0, b"\n"
    yield np.zeros(1, np.int64)
    while following := file.read(_BLOCK):
        block = following
        if not place and block.startswith(_WIDE):
            raise UnknownFormatError(
                "text must be of one byte or several to a character, as UTF-8 is; this file "
                "begins as UTF-16 does. Write it anew: iconv -f UTF-16 -t UTF-8."
            )
        starts = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + (place + 1)
        place += len(block)
        if len(starts):
            yield starts
    if not block.endswith(b"\n"):
        yield np.array([place])
