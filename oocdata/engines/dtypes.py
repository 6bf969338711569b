"""Check dtypes: those of batches and of arrays that can be opened; and name those without a name.

NumPy has no type string for the small floats of ml_dtypes, which TensorFlow depends on: their
``str`` is that of raw bytes, and they are saved as such. So they are known by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

from oocdata.errors import ArgumentError, UnsupportedDtypeError

SMALL_FLOATS = ("bfloat16", "float8_e4m3fn")
"""Without float8_e5m2, whose type string NumPy writes but can't read, in arrays and in files."""


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of the small floats that TensorFlow supports."""
    return dtype.isbuiltin == 2 and dtype.name in SMALL_FLOATS


def named_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a dtype, given as NumPy takes it or as the name of a small float.

    Raises `ArgumentError` for anything else.
    """
    if isinstance(dtype, str) and dtype in SMALL_FLOATS:
        import ml_dtypes

        dtype = getattr(ml_dtypes, dtype)
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ArgumentError(f"`dtype` must be a NumPy dtype; got {dtype!r}.") from error


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the text of a dtype that `named_dtype` takes.

    >>> dtype_text(named_dtype("bfloat16")), dtype_text(np.dtype("f4"))
    ('bfloat16', '<f4')
    """
    return dtype.name if is_small_float(dtype) else dtype.str


def described_dtype(dtype: np.dtype[Any]) -> Any:
    """Return a dtype, also with fields, in the JSON form that `oocdata.open` takes."""
    return dtype.name if is_small_float(dtype) else npy_format.dtype_to_descr(dtype)


def can_hold(dtype: np.dtype[Any], value: Any) -> bool:
    """Return whether a dtype can represent a number, exactly or rounded to a float.

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


def check_dtype(
    dtype: np.dtype[Any], path: str | None = None, key: str | None = None
) -> np.dtype[Any]:
    """Return a dtype if batches can hold it: bool, numbers, small floats, or text of fixed length.

    Raises `UnsupportedDtypeError` for objects, dates, structured rows and long doubles.
    """
    if dtype.kind == "O":
        raise UnsupportedDtypeError(
            "elements must be numbers, or text of a fixed size; got an array of objects, which a "
            "file holds as a pickle. Convert it: array.astype(str) for text, array.astype('f4').",
            path=path,
            key=key,
        )
    if (dtype.kind in "SU" and dtype.itemsize) or is_small_float(dtype):
        return dtype
    # TensorFlow has no long double, whose size depends on the platform.
    long = dtype.itemsize > (16 if dtype.kind == "c" else 8)
    if dtype.kind not in "biufc" or dtype.isbuiltin == 2 or long:
        hint = (
            f"Choose one of the fields {dtype.names}: view[{dtype.names[0]!r}], or "
            f"field={dtype.names[0]!r}; several side by side with ooc.zip."
            if dtype.names
            else "Save it again with a numeric dtype of at most 64 bits; a small float of "
            "ml_dtypes in a .npy is named by `dtype`, such as dtype='bfloat16'."
            if dtype in (np.dtype("V1"), np.dtype("V2"))
            else "Save it again with a numeric dtype of at most 64 bits."
        )
        raise UnsupportedDtypeError(
            "elements must be bool, integer, float or complex numbers, or text of a fixed length; "
            f"got {dtype}. {hint}",
            path=path,
            key=key,
        )
    return dtype


def check_stored(
    dtype: np.dtype[Any], path: str | None = None, key: str | None = None
) -> np.dtype[Any]:
    """Return the dtype of an array that can be opened: batches can hold it, or it has fields.

    Dates become integers; see `unit_of`. Raises `UnsupportedDtypeError` for any other dtype.
    """
    if dtype.names and dtype.hasobject:
        raise UnsupportedDtypeError(
            f"every field must have a fixed size; got {dtype}, where some are objects, or text of "
            "varying length. Save the fields of numbers on their own.",
            path=path,
            key=key,
        )
    if unit_of(dtype):
        return np.dtype(np.int64).newbyteorder(dtype.byteorder)
    return dtype if dtype.names else check_dtype(dtype, path, key)


def unit_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a datetime64 or timedelta64 dtype in native byte order; else ``""``.

    >>> unit_of(np.dtype(">M8[s]")), unit_of(np.dtype("f4"))
    ('datetime64[s]', '')
    """
    return dtype.name if dtype.kind in "mM" else ""
