"""From the bytes of a picture file to its numbers.

As they are stored, imagecodecs writes them where they belong: JPEG in 0.7 of the processor's time
that Pillow takes, PNG in 0.6, and PNG and TIFF of 16 bits a colour, which Pillow cuts to 8. Resized
or converted pictures are Pillow's: decoding them by the other first gains less than 1.2 times. A
JPEG that `Pictures` leaves as it is has the same numbers by both, and so is decoded by imagecodecs.
Both work outside the GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from io import BytesIO
from math import ceil, floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.buffers import empty
from oocdata.errors import (
    DamagedChunkError,
    MissingDependencyError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.codecs import codecs
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.recognising import picture_format

__all__ = ["Room", "as_stored", "converted", "format_of_bytes", "shape_told"]

Room = Callable[[int], AbstractContextManager[None]]
"""Counts bytes of scratch memory for as long as a block takes."""

_DECODERS = {
    "JPEG": "jpeg8_decode", "PNG": "png_decode", "TIFF": "tiff_decode", "WebP": "webp_decode",
    "GIF": "gif_decode", "BMP": "bmp_decode",
}  # fmt: skip

_TOGETHER = 256 << 10
"""Bytes of an array on the way to a picture that is not antialiased: the four stay in a cache."""

_END_OF_IMAGE, _START_OF_SCAN = b"\xff\xd9", 0xDA

_ORIENTATION = 274
"""The tag of TIFF 6.0."""

_TURNED_BACK = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90",
    7: "TRANSVERSE", 8: "ROTATE_270",
}  # fmt: skip
"""What undoes an orientation: Pillow turns TIFF, and no other format, as it is decoded."""

_MORE_BYTES = {"WEBP": 8}
"""A pixel, that Pillow takes beside its picture: libwebp's, and a copy of it."""


def format_of_bytes(data: bytes) -> str:
    """Return the format of the one whole picture that bytes are, or raise."""
    if not data:
        raise TruncatedFileError("a row must hold a picture; it is empty.")
    found = picture_format(data[:16])
    if not found:
        raise UnknownFormatError(
            f"a row must be a picture ({', '.join(_DECODERS)}); its first bytes are {data[:8]!r}. "
            "Leave it out of the files, or of the view: `filter`."
        )
    if found == "JPEG":
        _check_ended(data)
    if found == "TIFF":
        _check_single(data)
    return found


def as_stored(kind: str, data: bytes, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the numbers of a picture as they are stored, in `out` if that is given.

    Colours of a palette are looked up, but for TIFF; it is not turned as EXIF says. A `ValueError`
    if `out`, which is C-contiguous, has another shape or dtype.
    """
    given: dict[str, Any] = {"index": 0} if kind == "GIF" else {}
    # Of TIFF some decode by way of opacity; others write unsigned numbers whatever `out` is of.
    if out is not None and kind != "TIFF" and out.dtype.kind == "u":
        given["out"] = out
    try:
        found: NDArray[Any] = getattr(codecs(), _DECODERS[kind])(data, **given)
    except (MissingDependencyError, MemoryError):
        raise
    except ImportError as error:
        raise MissingDependencyError(
            f"{kind} needs a part of imagecodecs that can't be imported here; {error}."
        ) from error
    except Exception as error:  # each of its codecs has one of its own
        if given.get("out") is not None and isinstance(error, ValueError):
            raise
        raise damaged(kind, error) from error
    if out is not None and "out" not in given:
        if (found.shape, found.dtype) != (out.shape, out.dtype):
            raise ValueError(f"its shape is {found.shape}, and its dtype {found.dtype}")
        out[...] = found
    return found


def damaged(kind: str, error: Exception) -> DamagedChunkError:
    """Return the error of a picture that does not decode."""
    return DamagedChunkError(
        f"a row must decode as {kind}; {error}. It was cut short or damaged after it was "
        "written. Copy it again from where it came from, or leave its row out: `filter`."
    )


def _check_ended(data: bytes) -> None:
    """Raise if a JPEG has no end: its decoder would fill what misses with grey.

    Source: ITU-T T.81, B.1.1: segments have a length, until the first scan begins.
    """
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == _START_OF_SCAN:
            break
        filled = marker == 0xFF  # any number of them before a marker
        place += 1 if filled else 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    if data.rfind(_END_OF_IMAGE) < place:
        raise TruncatedFileError(
            f"a JPEG must have an end; this one stops after {len(data)} bytes. It was cut short."
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


# What Pillow makes of them.


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError(
            "`pictures` needs Pillow, which can't be imported here. Install it: "
            'pip install "oocdata[pictures]".'
        ) from error
    return Image


def shape_told(data: bytes) -> tuple[int, ...] | None:
    """Return the shape of a picture by its header; None where that can't be known."""
    try:
        with _pillow().open(BytesIO(data)) as image:
            channels = _channels(_natural(image))
            return (image.height, image.width, *channels)
    except Exception:  # it is for a message
        return None


def converted(data: bytes, wanted: Pictures, room: Room) -> NDArray[Any]:
    """Return the numbers of a picture as they are wanted; `room` counts what decoding takes.

    A `SourceError` if the bytes don't decode, or not without loss.
    """
    kind, library = format_of_bytes(data), _pillow()
    try:
        with library.open(BytesIO(data)) as image:
            if wanted.reduced and wanted.size is not None:
                image.draft(None, (2 * wanted.size[1], 2 * wanted.size[0]))
            mode = _mode(image, wanted)
            with room(len(data) + _scratch_bytes(image, mode, wanted)):
                if kind == "TIFF":
                    image = _turned_back(image, library)
                if wanted.antialias:
                    found = _made(image, mode, wanted, library)
                else:
                    found = _interpolated(_pixels(image, mode, wanted, kind, data), wanted)
                image.close()  # its memory is given back before others count on it
    except (SourceError, MissingDependencyError, MemoryError):
        raise
    except Exception as error:  # of any kind, where bytes are damaged
        raise damaged(kind, error) from error
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def _turned_back(image: Any, library: Any) -> Any:
    """Return a TIFF as it is stored."""
    how = _TURNED_BACK.get(image.tag_v2.get(_ORIENTATION))
    if how is None:
        return image
    stored = image.transpose(getattr(library.Transpose, how))
    image.close()
    return stored


def _made(image: Any, mode: str, wanted: Pictures, library: Any) -> NDArray[Any]:
    """Decode, convert and resize a picture."""
    if mode != image.mode:
        stored, image = image, image.convert(mode)
        stored.close()
    if wanted.size is not None:
        height, width = wanted.size
        filter_ = getattr(library.Resampling, wanted.filter.upper())
        image = image.resize((width, height), filter_, _box(image.size, wanted))
    return np.asarray(image)


def _pixels(image: Any, mode: str, wanted: Pictures, kind: str, data: bytes) -> NDArray[Any]:
    """Return the numbers of a picture before it is resized."""
    if kind == "JPEG" and image.mode == mode == "RGB" and not wanted.reduced:
        return as_stored(kind, data, empty((image.height, image.width, 3), np.uint8))
    return np.asarray(image if mode == image.mode else image.convert(mode))


def _interpolated(pixels: NDArray[Any], wanted: Pictures) -> NDArray[Any]:
    """Resize a picture without antialiasing, as ``tf.image.resize`` does; rounded.

    Some rows at a time, in memory that is recycled: what malloc takes from the kernel for each
    picture is a tenth of the processor's time of all. Rows first, since these are contiguous.

    From 500 × 375 to 224 × 224 it takes as long as decoding a JPEG, 0.45 ms of the processor's
    time; TensorFlow's own code 0.15. Columns taken as pixels in place of numbers take 0.65, as do
    the four neighbours taken before they are converted; `PIL.Image.transform`, which cuts what it
    computes to whole numbers, 1.0, and band by band, as floats, 1.4; a product of matrices 1.2.
    """
    assert wanted.size is not None
    height, width = pixels.shape[:2]
    tall, wide = wanted.size
    left, upper, right, lower = _box((width, height), wanted) or (0, 0, width, height)
    above, below, down = _neighbours(upper, lower, tall, height)
    rows = pixels.reshape(height, -1)
    each = rows.shape[1] // width
    first, second, across = _neighbours(left, right, wide, width, each)
    found = np.empty((tall, wide * each), pixels.dtype)
    lengths = rows.shape[1], wide * each
    step = min(tall, max(1, _TOGETHER // (4 * max(lengths))))
    stored, resized = (empty((2, step, length), np.float32) for length in lengths)
    for start in range(0, tall, step):
        some = slice(start, min(start + step, tall))
        mixed, other = stored[:, : some.stop - start]
        mixed[...], other[...] = (rows.take(at[some], axis=0) for at in (above, below))
        other -= mixed
        other *= down[some, None]
        mixed += other
        made, other = resized[:, : some.stop - start]
        for at, out in ((first, made), (second, other)):
            mixed.take(at, axis=1, out=out, mode="clip")  # of other modes it would make a copy
        other -= made
        other *= across
        made += other
        if pixels.dtype.kind in "ui":
            np.rint(made, out=made)
        found[some] = made
    return found.reshape(tall, wide, *pixels.shape[2:])


@lru_cache(maxsize=8)
def _neighbours(
    start: float, stop: float, count: int, length: int, each: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Return the two places next to each of so many between borders, and the second one's share.

    Of `each` numbers that lie side by side at a place.
    """
    at = start + (np.arange(count) + 0.5) * ((stop - start) / count) - 0.5
    lower = np.floor(at).astype(np.int64)
    share = (at - lower).astype(np.float32)
    first, last = floor(start), min(ceil(stop), length) - 1
    one, two = (
        (place.clip(first, last)[:, None] * each + np.arange(each)).ravel()
        for place in (lower, lower + 1)
    )
    return one, two, share.repeat(each)


def _mode(image: Any, wanted: Pictures) -> str:
    """Return the mode of Pillow that a picture is wanted in; raise if it would lose something."""
    stored, natural = image.mode, _natural(image)
    raw = image.tile[0][3] if image.tile else ""
    raw = raw if isinstance(raw, str) or not raw else raw[0]
    deep = natural == "F" or natural.startswith("I")
    if (";16" in str(raw) and not deep) or stored == "I" or (deep and wanted.channels in (3, 4)):
        raise UnsupportedDtypeError(
            "a picture must have 8 bits a colour, or be grey, to be resized or converted by "
            "Pillow; this one has more. Open such files without `pictures`, as they are stored."
        )
    if wanted.indices and stored == "P":
        return "P"
    if wanted.channels is None or deep:
        return natural
    return {1: "L", 3: "RGB", 4: "RGBA"}[wanted.channels]


def _natural(image: Any) -> str:
    """Return the mode of Pillow that has what is seen of a picture, and no more."""
    stored: str = image.mode
    if stored == "F" or stored.startswith("I"):  # more than 8 bits, grey
        return stored
    grey = stored in ("1", "L", "LA")
    return ("L" if grey else "RGB") + ("A" if image.has_transparency_data else "")


def _channels(mode: str) -> tuple[int, ...]:
    """Return the last axis of a picture of a natural mode; none of grey ones."""
    return () if mode in ("L", "F") or mode.startswith("I") else (len(mode),)


def _scratch_bytes(image: Any, mode: str, wanted: Pictures) -> int:
    """Return the bytes that a picture takes on the way: decoded, converted, half resized."""
    width, height = image.size
    again = mode != image.mode or mode.endswith("A")  # resized, colours are weighed by opacity
    each, made = _pixel_bytes(image.mode), _pixel_bytes(mode) if again else 0
    # The coefficients of all scans, 2 bytes each, are gone when it is converted.
    besides = 6 if image.info.get("progressive") else _MORE_BYTES.get(image.format, 0)
    if wanted.size is None:
        return int(width * height * (each + max(besides, made + _pixel_bytes(mode))))
    if not wanted.antialias:
        again = wanted.size[0] * wanted.size[1] * _pixel_bytes(mode)
        again += 4 * _TOGETHER
        return int(width * height * (each + max(besides, made + _pixel_bytes(mode))) + again)
    return int(width * height * (each + max(besides, made)) + wanted.size[1] * height * 4)


def _pixel_bytes(mode: str) -> int:
    """Return the bytes of a pixel, as Pillow keeps it."""
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4


def _box(size: tuple[int, int], wanted: Pictures) -> tuple[float, ...] | None:
    """Return the window in the middle that is resized: left, upper, right, lower."""
    if not wanted.crop or wanted.size is None:
        return None
    (width, height), (tall, wide) = size, wanted.size
    # Not by a rounded scale, by which it could lie a little outside.
    if width * tall < height * wide:
        across, down = float(width), width * tall / wide
    else:
        across, down = height * wide / tall, float(height)
    left, upper = (width - across) / 2, (height - down) / 2
    return left, upper, left + across, upper + down
