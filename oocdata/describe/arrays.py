"""Arrays of numbers in JSON: base64, and differences of neighbours where they are integers.

Rows chosen by a mask, and the bounds of episodes, ascend in small steps: their differences fit into
a byte or two. Nothing is compressed: what a compressor writes changes with its version.
"""

from __future__ import annotations

import base64
import binascii
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.dtypes import dtype_text, named_dtype
from oocdata.engines.source import check_dtype
from oocdata.errors import UnsupportedDtypeError

__all__ = ["decode_array", "decode_dtype", "decode_integers", "encode_array", "encode_integers"]


def encode_integers(numbers: NDArray[np.int64]) -> list[Any]:
    """Return int64 numbers in one dimension as the first and the steps; see `encode_array`.

    Examples
    --------
    >>> encode_integers(np.array([100, 101, 105])), decode_integers([100, ["|i1", [2], "AQQ="]])
    ([100, ['|i1', [2], 'AQQ=']], array([100, 101, 105]))
    """
    if len(numbers) == 0:
        return []
    steps = np.diff(numbers)  # wraps around, and is summed up wrapping around
    low, high = int(steps.min(initial=0)), int(steps.max(initial=0))
    kind = np.min_scalar_type(min(low, -1 - high))  # of a negative number: signed
    return [int(numbers[0]), encode_array(steps.astype(kind))]


def decode_integers(parts: Any) -> NDArray[np.int64]:
    """Return the numbers that `encode_integers` wrote, or raise ValueError."""
    if parts == []:
        return np.zeros(0, np.int64)
    first, encoded = parts
    steps = decode_array(encoded)
    if type(first) is not int or steps.ndim != 1 or steps.dtype.kind != "i":
        raise ValueError("not as integers are written")
    return np.cumsum(np.concatenate((np.array([first], np.int64), steps)), dtype=np.int64)


def encode_array(array: NDArray[Any] | np.generic) -> list[Any]:
    """Return numbers of any shape as ``[dtype, shape, base64]``, in C order.

    Examples
    --------
    >>> encode_array(np.float32([1, 2]))
    ['<f4', [2], 'AACAPwAAAEA=']
    """
    kind = check_dtype(array.dtype).newbyteorder("<")
    return [dtype_text(kind), list(array.shape), _text(np.asarray(array, kind))]


def decode_array(parts: Any) -> NDArray[Any]:
    """Return the array that `encode_array` wrote, or raise ValueError."""
    kind, shape, text = parts
    if not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError(f"no shape is {shape!r}")
    stored, held = decode_dtype(kind), _bytes(text)
    if len(held) != prod(shape) * stored.itemsize:
        raise ValueError(f"{len(held)} bytes for {kind} of shape {shape}")
    return np.frombuffer(held, stored).reshape(shape).astype(stored.newbyteorder("="))


def decode_dtype(text: Any) -> np.dtype[Any]:
    """Return a dtype from its string, e.g. ``"<f4"``, or raise ValueError."""
    try:
        kind = named_dtype(text)
        if type(text) is str and dtype_text(kind) == text:
            return kind if kind.hasobject else check_dtype(kind)
    except (TypeError, SyntaxError, UnsupportedDtypeError) as error:
        raise ValueError(str(error)) from error
    raise ValueError(f"no dtype is written {text!r}")


def _text(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"not base64: {error}") from error
