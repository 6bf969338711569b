"""Check that the bytes of a picture hold what its header says, before they are decoded.

Some decoders fill what is missing, or read other memory.
"""

from __future__ import annotations

import struct
from typing import Any

from oocdata.errors import TruncatedFileError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.recognising import picture_format

_END_OF_IMAGE, _START_OF_SCAN = b"\xff\xd9", 0xDA

_UNCOMPRESSED = (0, 3, 6)
"""Values of BMP's compression: BI_RGB, BI_BITFIELDS, BI_ALPHABITFIELDS."""


def format_of_bytes(data: bytes) -> str:
    """Return the format of a picture file; raise unless it holds one complete picture."""
    if not data:
        raise TruncatedFileError("a row must hold a picture; it is empty.")
    found = picture_format(data[:16])
    if not found:
        raise UnknownFormatError(
            "a row must be a picture (JPEG, PNG, TIFF, WebP, GIF, BMP); its first bytes are "
            f"{data[:8]!r}. Leave it out of the files, or of the view: `filter`."
        )
    if found == "JPEG":
        _check_ended(data)
    if found == "TIFF":
        _check_single(data)
    if found == "BMP":
        _check_rows(data)
    return found


def _check_ended(data: bytes) -> None:
    """Raise if a JPEG has no end: its decoder would fill missing rows with grey.

    Source: ITU-T T.81, B.1.1: segments have a length, until the first scan begins.
    """
    if data.endswith(_END_OF_IMAGE):
        return
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == _START_OF_SCAN:
            break
        filled = marker == 0xFF  # fill bytes before a marker
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    if data.rfind(_END_OF_IMAGE) < place:
        raise TruncatedFileError(
            f"a JPEG must have an end; this one stops after {len(data)} bytes. It was cut short."
        )


def _check_rows(data: bytes) -> None:
    """Raise if a BMP lacks rows that its header names: its decoder would read other memory.

    Source: BITMAPINFOHEADER of Windows; a row that is not compressed takes a multiple of 4 bytes.
    """
    fields = struct.unpack_from("<10xIIiixxHI", data.ljust(54, b"\0"))
    place, header, width, height, bits, compression = fields
    end = place + (width * bits + 31) // 32 * 4 * abs(height)
    if header >= 40 and compression in _UNCOMPRESSED and not 0 <= end <= len(data):
        raise TruncatedFileError(
            f"a BMP must hold {abs(height)} rows of {width} pixels, as its header says; this one "
            f"stops after {len(data)} bytes. It was cut short, or its header is damaged."
        )


def _check_single(data: bytes) -> None:
    """Raise if a TIFF has a second page, unless that is a smaller copy or a mask of the first.

    Source: TIFF 6.0, section 2, and BigTIFF: tag 254 says what a page is.
    """
    order: Any = "little" if data[:2] == b"II" else "big"
    big = int.from_bytes(data[2:4], order) == 43
    wide, number, entry = (8, 8, 20) if big else (4, 2, 12)

    def at(place: int, length: int) -> int:
        return int.from_bytes(data[place : place + length], order)

    first = at(8 if big else 4, wide)
    second = at(first + number + entry * at(first, number), wide)
    if not 0 < second < len(data):
        return
    tags = range(second + number, second + number + entry * min(at(second, number), 64), entry)
    kinds = [at(place + entry - wide, 4) for place in tags if at(place, 2) == 254]
    if not any(kind & 0b101 for kind in kinds):
        raise UnsupportedDtypeError(
            "a row must hold one picture; this TIFF has several pages. If it is a file that is not "
            "compressed, open the array of tifffile.memmap(path), which is read from the file; "
            "else read it page by page and write the elements with ooc.create."
        )
