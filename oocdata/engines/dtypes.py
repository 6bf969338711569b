"""Name dtypes, also the small floats of ml_dtypes, which TensorFlow depends on.

NumPy has no type string for these: their ``str`` is that of raw bytes, and they are saved as such.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

__all__ = ["can_hold", "described_dtype", "dtype_text", "is_small_float", "named_dtype"]

_SMALL_FLOATS = ("bfloat16", "float8_e4m3fn")
"""Without float8_e5m2, whose type string NumPy writes but can't read, in arrays and in files."""


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of the small floats that TensorFlow supports.

    Examples
    --------
    >>> is_small_float(named_dtype("bfloat16")), is_small_float(np.dtype("f2"))
    (True, False)
    """
    return dtype.isbuiltin == 2 and dtype.name in _SMALL_FLOATS


def named_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a dtype, given as NumPy takes it or as the name of a small float.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if isinstance(dtype, str) and dtype in _SMALL_FLOATS:
        import ml_dtypes

        dtype = getattr(ml_dtypes, dtype)
    return np.dtype(dtype)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the text of a dtype that `named_dtype` takes.

    Examples
    --------
    >>> dtype_text(named_dtype("bfloat16")), dtype_text(np.dtype("f4"))
    ('bfloat16', '<f4')
    """
    return dtype.name if is_small_float(dtype) else dtype.str


def described_dtype(dtype: np.dtype[Any]) -> Any:
    """Return a dtype, also with fields, in the JSON form that `oocdata.open` takes."""
    return dtype.name if is_small_float(dtype) else npy_format.dtype_to_descr(dtype)


def can_hold(dtype: np.dtype[Any], value: Any) -> bool:
    """Return whether a dtype can represent a number, exactly or rounded to a float.

    Examples
    --------
    >>> can_hold(np.dtype("u1"), 300), can_hold(np.dtype("f4"), 0.1)
    (False, True)
    """
    try:
        number = np.asarray(value)
        if number.dtype.kind not in "biufc" or number.ndim:
            return False
        with np.errstate(all="ignore"):
            converted = number.astype(dtype)
        if dtype.kind in "fc" and np.can_cast(number.dtype, dtype, "same_kind"):
            return bool(np.isfinite(converted) == np.isfinite(number))
        return bool(np.array_equal(converted, number, equal_nan=True))
    except (TypeError, ValueError, OverflowError):
        return False
