"""Opening what is damaged: as much of an array as is there, and which rows are not.

`oocdata.open` refuses a file that is not whole. A check wants to know the rest as well, so what is
lost is told here, and a source is made of what is left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from oocdata.datasets.spec import as_dtype
from oocdata.engines.axes import sample_axes
from oocdata.engines.blocked import blocked
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.source import Source, Storage, check_dtype
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.errors import ArgumentError, TrailingBytesError, TruncatedFileError
from oocdata.formats.opening import Axis, Format, format_of, open_source
from oocdata.tools.check.rows import Rows
from oocdata.tools.info import Opening
from oocdata.tools.ranges import Ranges

__all__ = ["Fault", "Opened", "opened", "row_axis", "rows_of"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with some rows, known without reading them.

    Attributes
    ----------
    kind : str
        See `oocdata.tools.check.Finding`.
    rows : Ranges
        Empty where it concerns none, or nobody can say which.
    reason : str
    zeros : tuple of range
        Those of the rows that are known to read as zero, ascending.
    """

    kind: str
    rows: Ranges
    reason: str
    zeros: tuple[range, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """An array as far as it is there.

    Attributes
    ----------
    rows : Rows
        All of them.
    lost : tuple of range
        Rows that must not be read, ascending.
    faults : tuple of Fault
    """

    rows: Rows
    lost: tuple[range, ...] = ()
    faults: tuple[Fault, ...] = field(default=())


@contextmanager
def opened(path: str, key: str | None, opening: Opening) -> Iterator[Opened]:
    """Open an array of a file, for as long as the block takes.

    Raises
    ------
    oocdata.errors.SourceError, oocdata.errors.ArgumentError
        If nothing of it can be read.
    """
    kind: Format | None = None if opening.shape is not None else format_of(path)
    if kind == "hdf5":
        from oocdata.tools.check.hdf5 import opened_hdf5

        with opened_hdf5(path, key, opening) as found:
            yield found
    elif kind == "zarr":
        from oocdata.tools.check.zarr import opened_zarr

        yield opened_zarr(path, key, opening)
    elif kind == "npz":
        yield _opened_npz(path, key, opening)
    else:
        yield _opened_plain(path, key, opening)


def _opened_plain(path: str, key: str | None, opening: Opening) -> Opened:
    """Open ``.npy`` or raw binary, cut short or too long as it may be."""
    try:
        return Opened(rows_of(open_source(path, key, **_arguments(opening)), opening.axis))
    except (TruncatedFileError, TrailingBytesError) as error:
        kind = "truncated" if isinstance(error, TruncatedFileError) else "trailing"
        reason = error.message
        if opening.shape is not None and opening.dtype is not None:
            fortran, dtype = False, as_dtype(opening.dtype)
            shape = _filled(path, opening.shape, opening.offset, dtype)
            offset = opening.offset
        else:
            with open(path, "rb") as file:
                magic = npy_format.read_magic(file)
                read = (
                    npy_format.read_array_header_1_0
                    if magic == (1, 0)
                    else npy_format.read_array_header_2_0
                )
                shape, fortran, dtype = read(file)
                offset = file.tell()
    version, stored = FileVersion.of(path), check_dtype(dtype, path)
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    named = "raw" if opening.shape else ".npy"
    storage = Storage(named, version.path, strides=strides, files=(version,))
    whole = Strided(OpenFile(version), stored, shape, strides, offset, storage)
    rows = Rows(whole, row_axis(opening.axis, len(shape), storage))  # a block may not be whole
    lost = _beyond(rows, offset, version.nbytes)
    return Opened(rows, (lost,) if lost else (), (Fault(kind, Ranges([lost]), reason),))


def _filled(
    path: str, shape: tuple[int, ...], offset: int, dtype: np.dtype[Any]
) -> tuple[int, ...]:
    """Return the shape of raw binary, with what -1 stands for: whole rows alone."""
    known = prod(length for length in shape if length != -1) * dtype.itemsize
    held = max(0, os.path.getsize(path) - offset)
    return tuple(held // max(1, known) if length == -1 else length for length in shape)


def _beyond(rows: Rows, offset: int, end: int) -> range:
    """Return the rows that reach beyond the end of the file: the last ones, in any order of axes.

    A row's last byte lies farther the farther the row is, because strides are positive.
    """
    strides, count = rows.source.storage().strides or (), rows.shape[0]
    step = strides[rows.axis]
    reach = sum((n - 1) * by for n, by in zip(rows.source.shape, strides, strict=True))
    room = end - offset - (reach - (count - 1) * step) - rows.dtype.itemsize
    whole = room // step + 1 if room >= 0 and step else 0
    return range(min(whole, count), count)


def _opened_npz(path: str, key: str | None, opening: Opening) -> Opened:
    """Open a member of an ``.npz``, which has a CRC-32 (APPNOTE 4.4.7)."""
    import zipfile
    import zlib

    rows = rows_of(open_source(path, key, **_arguments(opening)), opening.axis)
    faults = []
    with zipfile.ZipFile(path) as archive:
        try:
            with archive.open(f"{rows.source.storage().key}.npy") as file:
                while file.read(1 << 20):
                    pass
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            all_rows = Ranges([range(rows.shape[0])])
            faults.append(Fault("damaged", all_rows, f"a member must match its CRC-32; {error}."))
    return Opened(rows, (), tuple(faults))


def row_axis(axis: Axis, ndim: int, storage: Storage) -> int:
    """Return the number of the one axis whose places are checked as rows.

    Raises
    ------
    oocdata.errors.ArgumentError
    """
    axes = sample_axes(axis, ndim, storage)
    if len(axes) > 1:
        raise ArgumentError(
            f"`axis` must be one axis, whose places are checked as rows; got {axis!r}. Give the "
            "first of them, which is the one by which `verify` reads too."
        )
    return axes[0]


def rows_of(source: Source, axis: Axis) -> Rows:
    """Return an array as rows along the axis that was asked for, as they are read best."""
    number = row_axis(axis, len(source.shape), source.storage())
    return Rows(blocked(source, (number,)), number)


def _arguments(opening: Opening) -> dict[str, Any]:
    return {
        "axis": opening.axis, "dtype": opening.dtype, "shape": opening.shape,
        "offset": opening.offset,
    }  # fmt: skip
