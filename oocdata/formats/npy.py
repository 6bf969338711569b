"""Open ``.npy`` files and raw binary files.

The ``.npy`` format is NumPy's (``numpy.lib.format``, NEP 1): magic, version, header length, a
header with shape, dtype and order, then the numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from math import prod
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import DTypeLike

from oocdata.engines import dtypes
from oocdata.engines.axes import axis_numbers
from oocdata.engines.files import Version
from oocdata.engines.source import Storage
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import (
    ArgumentError,
    TrailingBytesError,
    TruncatedFileError,
    UnknownFormatError,
    error_location,
)
from oocdata.formats.paths import file_of, open_stream, store_error_in, version_of
from oocdata.index import as_count

LONGEST_HEADER = 10_000
"""Bytes of a header that NumPy parses by default (``max_header_size``)."""


def open_npy(
    path: str, *, axis: int | str = 0, whole: bool = True, dtype: DTypeLike | None = None
) -> Strided:
    """Open a ``.npy`` file of any header version, order and byte order.

    Rows in errors are positions along `axis`, as in all functions of this module. With
    ``whole=False``, the file may be shorter or longer than its header says. `dtype` names the
    ml_dtypes float whose elements NumPy has saved as raw bytes.
    """
    with open_stream(path) as (file, version), error_location(path):
        shape, fortran, stored = read_header(file)
        offset = file.tell()
    reopen: dict[str, Any] = {"target": version.path}
    if dtype is not None:
        small_float = dtypes.named_dtype(as_fields(dtype))
        if not dtypes.is_small_float(small_float) or stored != np.dtype(f"V{small_float.itemsize}"):
            raise ArgumentError(
                "`dtype` must be given for raw binary files only, or be 'bfloat16' or "
                f"'float8_e4m3fn' for a .npy of raw bytes; got {dtype!r} for one of {stored}. Use "
                ".astype to convert."
            )
        stored, reopen["dtype"] = small_float, small_float.name
    storage = Storage(".npy", version.path, opened=reopen)
    nbytes = version.nbytes - offset
    return open_contiguous(version, shape, stored, fortran, offset, nbytes, axis, storage, whole)


def open_raw(
    path: str,
    *,
    dtype: DTypeLike,
    shape: Sequence[int],
    offset: int = 0,
    axis: int | str = 0,
    whole: bool = True,
) -> Strided:
    """Open a raw binary file: numbers in C order from byte `offset` to the end.

    One entry of `shape` may be -1 and is computed from the length of the file. Unless `whole` is
    False, dtype, shape and offset must account for every byte of the file.
    """
    version, stored = version_of(path), dtypes.named_dtype(as_fields(dtype))
    dtypes.check_stored(stored, path)
    start = as_count("offset", offset, at_least=0)
    nbytes = version.nbytes - start
    if nbytes < 0 and whole:
        raise TruncatedFileError(
            f"`offset` must lie within the {version.nbytes} bytes of the file; got {start}.",
            path=path,
        )
    try:
        lengths = [operator.index(length) for length in shape]
    except TypeError:
        lengths = [-2]  # refused below
    if lengths.count(-1) > 1 or min(lengths, default=0) < -1:
        raise ArgumentError(
            f"`shape` must be whole numbers from 0, at most one of them -1; got {shape!r}."
        )
    if -1 in lengths:
        known = prod(length for length in lengths if length != -1) * stored.itemsize
        lengths[lengths.index(-1)] = max(0, nbytes) // known if known else 0
    reopen = {
        "target": version.path,
        "shape": lengths,
        "offset": start,
        "dtype": dtypes.described_dtype(stored),
    }
    storage = Storage("raw", version.path, opened=reopen)
    return open_contiguous(
        version, tuple(lengths), stored, False, start, nbytes, axis, storage, whole
    )


def as_fields(dtype: Any) -> Any:
    """Return a structured dtype read from JSON as the list of tuples that NumPy accepts.

    Other dtypes are returned unchanged.
    """
    are_fields = isinstance(dtype, list | tuple) and all(
        isinstance(field, list | tuple) and len(field) > 1 for field in dtype
    )
    if not are_fields:
        return dtype
    return [(name, as_fields(kind), *map(tuple, shape)) for name, kind, *shape in dtype]


def read_header(
    file: IO[bytes], key: str | None = None
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read a ``.npy`` header; return shape, whether in Fortran order, and dtype."""
    try:
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version} is unknown")
        length = file.read(2 if version == (1, 0) else 4)
        nbytes = int.from_bytes(length, "little")
        if nbytes > LONGEST_HEADER:  # do not read gigabytes that a damaged length asks for
            raise ValueError(f"it has {nbytes:,} bytes, and NumPy reads {LONGEST_HEADER:,} at most")
        text = file.read(nbytes)
        if version == (3, 0):
            # NumPy has no public reader of version 3, which is version 2 with its header in UTF-8
            # instead of Latin-1. Non-ASCII field names are escaped to pass as version 2.
            text = text.decode().encode("ascii", "backslashreplace")
            length = len(text).to_bytes(4, "little")
        shape, fortran, dtype = _parsed(length, text)
        if any(length < 0 for length in shape):
            raise ValueError(f"its shape is {shape}")
    except Exception as error:  # the header is parsed as Python, which may raise anything
        raise store_error_in(error) or UnknownFormatError(
            f"the .npy header must be readable; {error}.", key=key
        ) from error
    return shape, fortran, dtype


@lru_cache(64)
def _parsed(length: bytes, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parse a header; those of many files of one shape are equal, and NumPy takes 40 us for one."""
    read = (
        npy_format.read_array_header_1_0 if len(length) == 2 else npy_format.read_array_header_2_0
    )
    return read(BytesIO(length + text))


def open_contiguous(
    version: Version,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fortran: bool,
    offset: int,
    nbytes: int,
    axis: int | str,
    storage: Storage,
    whole: bool = True,
) -> Strided:
    """Return the source of a contiguous array; `nbytes` are there from byte `offset` on."""
    with error_location(storage.path, storage.key):
        stored = dtypes.check_stored(dtype, storage.path)
        needed = prod(shape) * stored.itemsize
        expected = f"{needed} bytes of numbers (shape {shape}, {stored.str})"
        if whole and nbytes < needed:
            raise TruncatedFileError(
                f"the file must hold {expected}; got {nbytes}. It was cut short, or its writer is "
                "not done."
            )
        if whole and nbytes > needed:
            raise TrailingBytesError(
                f"the file must end after {expected}; got {nbytes - needed} more. The shape is "
                "wrong, something was appended, or a raw file has a header, which `offset` skips."
            )
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    storage = replace(
        storage,
        layout=f"contiguous, {'Fortran' if fortran and len(shape) > 1 else 'C'} order",
        codec="none",
        stored_bytes=needed,
        reading="each box by its byte offsets, straight into the batch",
        strides=strides,
        offset=offset,
        unit=dtypes.unit_of(dtype),
        files=(version,),
    )
    (rows,) = axis_numbers(axis, len(shape), storage) if shape else (0,)
    return Strided(file_of(version), stored, shape, strides, offset, storage, axis=rows)
