"""Small floats of ml_dtypes, which comes with TensorFlow, by name.

NumPy has no type string for them: their ``str`` is that of raw bytes, as which they are saved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

__all__ = ["described_dtype", "dtype_text", "is_small_float", "named_dtype"]

_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn")
"""Not float8_e5m2, whose type string NumPy writes and can't read, in arrays and in files."""


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of the small floats that TensorFlow has.

    Examples
    --------
    >>> is_small_float(named_dtype("bfloat16")), is_small_float(np.dtype("f2"))
    (True, False)
    """
    return dtype.isbuiltin == 2 and dtype.name in _SMALL_FLOATS


def named_dtype(given: DTypeLike) -> np.dtype[Any]:
    """Return a dtype from what NumPy takes, or the name of a small float; TypeError for others."""
    if isinstance(given, str) and given in _SMALL_FLOATS:
        import ml_dtypes

        given = getattr(ml_dtypes, given)
    found: np.dtype[Any] = np.dtype(given)
    return found


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the text from which `named_dtype` makes a dtype.

    Examples
    --------
    >>> dtype_text(named_dtype("bfloat16")), dtype_text(np.dtype("f4"))
    ('bfloat16', '<f4')
    """
    return dtype.name if is_small_float(dtype) else dtype.str


def described_dtype(dtype: np.dtype[Any]) -> Any:
    """Return what `oocdata.open` takes as a dtype, fields too, and JSON can hold."""
    return dtype.name if is_small_float(dtype) else npy_format.dtype_to_descr(dtype)
