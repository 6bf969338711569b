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

from oocdata.errors import TrailingBytesError, TruncatedFileError
from oocdata.sources.adapt import as_dtype, layout_of
from oocdata.sources.extents import Extents, FileStamp, contiguous_strides
from oocdata.sources.opening import Format, format_of, open_source
from oocdata.sources.source import Layout, Source, check_axis, check_dtype
from oocdata.tools.check.ranges import Ranges
from oocdata.tools.info import Opening

__all__ = ["Fault", "Opened", "opened"]


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
    source : Source
        Of all rows.
    axis : int
        The row axis, counted from the front.
    lost : tuple of range
        Rows that must not be read, ascending.
    faults : tuple of Fault
    """

    source: Source
    axis: int
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
        source = open_source(path, key, **_arguments(opening))
        return Opened(source, check_axis(opening.axis, len(source.shape), path))
    except (TruncatedFileError, TrailingBytesError) as error:
        kind = "truncated" if isinstance(error, TruncatedFileError) else "trailing"
        reason = error.message
        if opening.shape is not None and opening.dtype is not None:
            fortran, dtype = False, as_dtype(opening.dtype)
            shape = _filled(path, opening.shape, opening.offset, dtype)
            offset = opening.offset
        else:
            with open(path, "rb") as file:
                version = npy_format.read_magic(file)
                read = (
                    npy_format.read_array_header_1_0
                    if version == (1, 0)
                    else npy_format.read_array_header_2_0
                )
                shape, fortran, dtype = read(file)
                offset = file.tell()
    stamp = FileStamp.of(path)
    stored = check_dtype(dtype, path)
    layout = Layout("raw" if opening.shape else ".npy", path, None, "contiguous", "none", None, "")
    strides = contiguous_strides(shape, stored.itemsize, fortran=fortran)
    whole = Extents(stamp, stored, shape, strides, offset, layout)
    axis = check_axis(opening.axis, len(shape), path)
    rows = whole.with_row_axis(axis)
    lost = _beyond(rows, stamp.nbytes)
    return Opened(rows, axis, (lost,) if lost else (), (Fault(kind, Ranges([lost]), reason),))


def _filled(
    path: str, shape: tuple[int, ...], offset: int, dtype: np.dtype[Any]
) -> tuple[int, ...]:
    """Return the shape of raw binary, with what -1 stands for: whole rows alone."""
    known = prod(length for length in shape if length != -1) * dtype.itemsize
    held = max(0, os.path.getsize(path) - offset)
    return tuple(held // max(1, known) if length == -1 else length for length in shape)


def _beyond(rows: Extents, end: int) -> range:
    """Return the rows that reach beyond the end of the file: the last ones, in any order of axes.

    A row's last byte lies farther the farther the row is, because strides are positive.
    """
    reach = sum((n - 1) * step for n, step in zip(rows.shape[1:], rows.strides[1:], strict=True))
    room = end - rows.offset - reach - rows.stored.itemsize
    whole = room // rows.strides[0] + 1 if room >= 0 and rows.strides[0] else 0
    return range(min(whole, rows.shape[0]), rows.shape[0])


def _opened_npz(path: str, key: str | None, opening: Opening) -> Opened:
    """Open a member of an ``.npz``, which has a CRC-32 (APPNOTE 4.4.7)."""
    import zipfile
    import zlib

    source = open_source(path, key, **_arguments(opening))
    faults = []
    with zipfile.ZipFile(path) as archive:
        try:
            with archive.open(f"{layout_of(source).key}.npy") as file:
                while file.read(1 << 20):
                    pass
        except (zipfile.BadZipFile, zlib.error, OSError) as error:
            rows = Ranges([range(source.shape[0])])
            faults.append(Fault("damaged", rows, f"a member must match its CRC-32; {error}."))
    axis = check_axis(opening.axis, len(source.shape), path)
    return Opened(source, axis, (), tuple(faults))


def _arguments(opening: Opening) -> dict[str, Any]:
    return {
        "axis": opening.axis, "dtype": opening.dtype, "shape": opening.shape,
        "offset": opening.offset, "missing": "fill", "external": opening.external,
    }  # fmt: skip
