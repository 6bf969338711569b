"""Arrays of numbers in JSON: base64, and differences of neighbours where they are integers.

Rows chosen by a mask, and the bounds of episodes, ascend in small steps: their differences fit into
a byte or two. Nothing is compressed: what a compressor writes changes with its version.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.dtypes import dtype_text, named_dtype
from oocdata.engines.source import check_dtype

__all__ = ["decode_array", "decode_integers", "encode_array", "encode_integers"]


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
    steps = np.concatenate((np.array([first], np.int64), decode_array(encoded)))
    return np.cumsum(steps, dtype=np.int64)


def encode_array(array: NDArray[Any] | np.generic) -> list[Any]:
    """Return numbers of any shape as ``[dtype, shape, base64]``, in C order.

    Examples
    --------
    >>> encode_array(np.float32([1, 2]))
    ['<f4', [2], 'AACAPwAAAEA=']
    """
    kind = check_dtype(array.dtype).newbyteorder("<")
    text = base64.b64encode(np.asarray(array, kind).tobytes()).decode("ascii")
    return [dtype_text(kind), list(array.shape), text]


def decode_array(parts: Any) -> NDArray[Any]:
    """Return the array that `encode_array` wrote, or raise ValueError."""
    kind, shape, text = parts
    stored = named_dtype(kind)
    array = np.frombuffer(base64.b64decode(text, validate=True), stored)
    return array.reshape(shape).astype(stored.newbyteorder("="))
