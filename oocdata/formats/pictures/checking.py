"""Check that the bytes of a picture hold what its header says, before they are decoded.

Some decoders fill what is missing, or read other memory.
"""

from __future__ import annotations

import struct
from typing import Any

from oocdata.errors import TruncatedFileError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.recognising import picture_format

_END_OF_IMAGE, _START_OF_SCAN = b"\xff\xd9", 0xDA

_FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)
"""Markers of the frames that libjpeg decodes."""

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
    # A decoder of JPEG would fill missing rows with grey.
    ended = found != "JPEG" or data.endswith(_END_OF_IMAGE)
    if not ended and data.rfind(_END_OF_IMAGE) < _scan(data)[0]:
        raise TruncatedFileError(
            f"a JPEG must have an end; this one stops after {len(data)} bytes. It was cut short."
        )
    if found == "TIFF":
        _check_single(data)
    if found == "BMP":
        _check_rows(data)
    return found


def _scan(data: bytes) -> tuple[int, int]:
    """Return where the first scan of a JPEG begins, and its number of colours, 0 if unknown.

    Source: ITU-T T.81, B.1.1: segments have a length, until the first scan begins.
    """
    place, colours = 2, 0
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == _START_OF_SCAN:
            break
        if marker in _FRAMES:
            colours = int.from_bytes(data[place + 9 : place + 10])
        filled = marker == 0xFF  # fill bytes before a marker
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return place, colours


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
    _, following = _page(data)
    if not 0 < following < len(data):
        return
    if not _page(data, following)[0].get(254, 0) & 0b101:
        raise UnsupportedDtypeError(
            "a row must hold one picture; this TIFF has several pages. If it is a file that is not "
            "compressed, open the array of tifffile.memmap(path), which is read from the file; "
            "else read it page by page and write the elements with ooc.create."
        )


def _page(data: bytes, place: int | None = None) -> tuple[dict[int, int], int]:
    """Return numbers of a page of a TIFF by tag, and the place of the next; of the first page."""
    order: Any = "little" if data[:2] == b"II" else "big"
    big = int.from_bytes(data[2:4], order) == 43
    wide, number, entry = (8, 8, 20) if big else (4, 2, 12)

    def at(place: int, length: int) -> int:
        return int.from_bytes(data[place : place + length], order)

    place = at(8 if big else 4, wide) if place is None else place
    count = at(place, number)
    tags = range(place + number, place + number + entry * min(count, 64), entry)
    names = {tag: at(tag, 2) for tag in tags}  # 254 has 4 bytes, others that are asked for 2
    found = {name: at(tag + entry - wide, 4 if name == 254 else 2) for tag, name in names.items()}
    return found, at(place + number + entry * count, wide)


def has_colours(kind: str, data: bytes, channels: int | None) -> bool:
    """Return whether imagecodecs decodes a picture to its colours (of a JPEG, so many), not turned.

    Of JPEG it delivers CMYK. Of TIFF it delivers indices of a palette and white as zero; and it
    undoes a part of the orientation of what is stored as JPEG, or in CMYK or YCbCr.
    """
    if kind == "JPEG":
        colours = _scan(data)[1]
        return colours in (1, 3) and channels in (None, colours)
    if kind == "TIFF":
        tags, _ = _page(data)  # colours: white is zero, palette, CMYK, YCbCr; compression: JPEG
        return tags.get(262) not in (0, 3, 5, 6) and tags.get(259) not in (6, 7)
    return True
