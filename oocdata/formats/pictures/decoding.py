"""Decode picture files to arrays, outside the GIL.

Unchanged pictures are decoded by imagecodecs, directly into the batch: JPEG in 0.7 of the
processor's time of Pillow, PNG in 0.6, and 16 bits a colour, which Pillow cuts to 8. Pictures to
resize or convert are decoded by Pillow: imagecodecs first gains less than 1.2 times.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import (
    DamagedChunkError,
    MissingDependencyError,
    SourceError,
    UnsupportedDtypeError,
    needed,
)
from oocdata.formats.codecs import codecs
from oocdata.formats.pictures.checking import format_of_bytes
from oocdata.formats.pictures.options import Pictures

Room = Callable[[int], AbstractContextManager[None]]
"""Counts bytes of scratch memory during a block."""

_DECODERS = {
    "JPEG": "jpeg8_decode", "PNG": "png_decode", "TIFF": "tiff_decode", "WebP": "webp_decode",
    "GIF": "gif_decode", "BMP": "bmp_decode",
}  # fmt: skip

_ORIENTATION = 274
"""The tag of TIFF 6.0."""

_INVERSE_TRANSPOSE = {
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90",
    7: "TRANSVERSE", 8: "ROTATE_270",
}  # fmt: skip
"""Transpositions that undo an orientation: Pillow applies that of TIFF, and of no other format."""

_MORE_BYTES = {"WEBP": 8}
"""Bytes a pixel that Pillow takes in addition to its picture: libwebp's picture, and a copy."""


def decode_stored(kind: str, data: bytes, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Decode a picture as it is stored, into `out` if that is given.

    An EXIF orientation is not applied. Raise `ValueError` if `out`, which is C-contiguous, has
    another shape or dtype.
    """
    options: dict[str, Any] = {"index": 0} if kind == "GIF" else {}
    # TIFF: some decode by way of opacity, others write unsigned numbers whatever dtype `out` has.
    if out is not None and kind != "TIFF" and out.dtype.kind == "u":
        options["out"] = out
    try:
        found: NDArray[Any] = getattr(codecs(), _DECODERS[kind])(data, **options)
    except MemoryError as error:
        if "out" in options:
            raise
        reason = ValueError("it says that it decodes to more than memory holds")
        raise damaged(kind, reason) from error
    except ImportError as error:
        raise MissingDependencyError(
            f"{kind} needs a part of imagecodecs that can't be imported here; {error}."
        ) from error
    except Exception as error:  # each codec has its own class
        if options.get("out") is not None and isinstance(error, ValueError):
            raise
        raise damaged(kind, error) from error
    if out is not None and "out" not in options:
        if (found.shape, found.dtype) != (out.shape, out.dtype):
            raise ValueError(f"its shape is {found.shape}, and its dtype {found.dtype}")
        out[...] = found
    return found


def damaged(kind: str, error: Exception) -> DamagedChunkError:
    """Return the error for a picture that does not decode."""
    reason = str(error).partition(" <_io.")[0]  # Pillow names the object that holds the bytes
    return DamagedChunkError(
        f"a row must decode as {kind}; {reason}. It was cut short or damaged after it was "
        "written. Copy it again from where it came from, or leave its row out: `filter`."
    )


# Resizing and converting, by Pillow.


def _pillow() -> Any:
    with needed("these pictures need Pillow", '"oocdata[pictures]"'):
        from PIL import Image
    return Image


def shape_from_header(data: bytes) -> tuple[int, ...] | None:
    """Return the shape of a picture from its header; None if it is unknown."""
    try:
        with _pillow().open(BytesIO(data)) as image:
            channels = _channels(_natural(image))
            return (image.height, image.width, *channels)
    except Exception:  # the shape is for a message
        return None


def decode_converted(data: bytes, options: Pictures, room: Room) -> NDArray[Any]:
    """Decode a picture, then convert and resize it; `room` counts the memory that this takes.

    Raise `SourceError` if the bytes don't decode, or only with loss.
    """
    kind, library = format_of_bytes(data), _pillow()
    try:
        with library.open(BytesIO(data)) as image:
            mode = _mode(image, options)
            with room(len(data) + _scratch_bytes(image, mode, options)):
                if kind == "TIFF":
                    image = _undo_orientation(image, library)
                if mode != image.mode:
                    stored, image = image, _converted(image, mode, library)
                    stored.close()
                pixels = _resized(image, options, library)
                image.close()  # frees its memory before other threads may use it
    except (SourceError, MissingDependencyError, MemoryError):
        raise
    except Exception as error:  # damaged bytes raise all kinds
        raise damaged(kind, error) from error
    return pixels.astype(pixels.dtype.newbyteorder("="), copy=False)


def _undo_orientation(image: Any, library: Any) -> Any:
    """Return a TIFF as it is stored, without its orientation."""
    how = _INVERSE_TRANSPOSE.get(image.tag_v2.get(_ORIENTATION))
    if how is None:
        return image
    stored = image.transpose(getattr(library.Transpose, how))
    image.close()
    return stored


def _converted(image: Any, mode: str, library: Any) -> Any:
    if mode == "I;16":  # of big-endian numbers Pillow would mix up the bytes
        return library.fromarray(np.asarray(image).astype("<u2"))
    return image.convert(mode)


def _resized(image: Any, options: Pictures, library: Any) -> NDArray[Any]:
    if options.size is not None:
        height, width = options.size
        filter_ = getattr(library.Resampling, options.filter.upper())
        if options.crop:
            from PIL import ImageOps

            image = ImageOps.fit(image, (width, height), filter_)
        else:
            image = image.resize((width, height), filter_)
    return np.asarray(image)


def _mode(image: Any, options: Pictures) -> str:
    """Return the mode of Pillow to convert a picture to; raise if it would lose something."""
    stored, natural = image.mode, _natural(image)
    raw = image.tile[0][3] if image.tile else ""
    raw = raw if isinstance(raw, str) or not raw else raw[0]
    deep = natural == "F" or natural.startswith("I")
    if (";16" in str(raw) and not deep) or stored == "I" or (deep and options.channels in (3, 4)):
        raise UnsupportedDtypeError(
            "a picture must have 8 bits a colour, or be grey, to be resized or converted by "
            "Pillow; this one has more. Open such files without `pictures`, as they are stored."
        )
    if options.indices and stored == "P":
        return "P"
    if options.channels is None or deep:
        return natural
    return {1: "L", 3: "RGB", 4: "RGBA"}[options.channels]


def _natural(image: Any) -> str:
    """Return the simplest mode of Pillow that shows a picture without loss."""
    stored: str = image.mode
    if stored == "F" or stored.startswith("I"):  # more than 8 bits, grey
        return "I;16" if stored.startswith("I;16") else stored
    grey = stored in ("1", "L", "LA")
    return ("L" if grey else "RGB") + ("A" if image.has_transparency_data else "")


def _channels(mode: str) -> tuple[int, ...]:
    return () if mode in ("L", "F") or mode.startswith("I") else (len(mode),)


def _scratch_bytes(image: Any, mode: str, options: Pictures) -> int:
    """Return the bytes that decoding a picture takes: decoded, converted, half resized."""
    width, height = image.size
    is_copied = mode != image.mode or mode.endswith("A")  # opacity weighs colours in resizing
    decoded, copied = _pixel_bytes(image.mode), _pixel_bytes(mode) if is_copied else 0
    # The coefficients of all scans, 2 bytes each, are freed before the picture is converted.
    extra = 6 if image.info.get("progressive") else _MORE_BYTES.get(image.format, 0)
    whole = int(width * height * (decoded + max(extra, copied + _pixel_bytes(mode))))
    if options.size is None:
        return whole
    tall, wide = options.size
    resized = tall * wide * _pixel_bytes(mode)
    # Pillow's result is copied to bytes, in parts and then as a whole.
    half_resized = wide * height * 4
    whole = int(width * height * (decoded + max(extra, copied)))
    return int(whole + resized + max(half_resized, 2 * resized))


def _pixel_bytes(mode: str) -> int:
    return 1 if mode in ("1", "L", "P") else 2 if mode.startswith("I;16") else 4
