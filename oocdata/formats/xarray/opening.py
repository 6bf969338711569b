"""Open a DataArray: from its stored array if that is known, else through xarray."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from oocdata.engines.axes import axis_numbers
from oocdata.engines.axis_views import AxisMap, AxisView
from oocdata.engines.dtypes import check_dtype, check_stored, unit_of
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Annotations, Source, Storage
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import (
    ArgumentError,
    MissingDependencyError,
    MissingKeyError,
    SeveralDatasetsError,
    UnsupportedDtypeError,
)
from oocdata.formats.dimensions import SCALED, VALID, packing
from oocdata.formats.memory import slices_of
from oocdata.formats.options import refuse_arguments
from oocdata.formats.packing import decoded
from oocdata.formats.patterns import Missing
from oocdata.formats.xarray.stored import StoredArray, is_loaded, stored_array


def array_of(target: Any, key: str | None) -> Any:
    """Return the DataArray itself, or the one at `key` in a Dataset or DataTree.

    A key includes the groups of a DataTree. It is not needed if only one variable is no coordinate.
    """
    if not hasattr(target, "data_vars"):
        if key is not None:
            raise ArgumentError(
                f"`key` must be None for a {type(target).__name__}, which is one array; got "
                f"{key!r}."
            )
        return target
    arrays = target.data_vars
    names = [name for name, one in arrays.items() if one.dtype.kind in "biufc" and one.dims]
    if key is None and len(names) == 1:
        return target[names[0]]
    found = None
    with suppress(KeyError):
        found = None if key is None else target[key]
    if found is None or hasattr(found, "data_vars"):
        error = SeveralDatasetsError if key is None and names else MissingKeyError
        raise error(
            f"`key` must name a variable of the {type(target).__name__}; got {key!r}. Its "
            f"variables of numbers: {', '.join(map(repr, names)) or 'none'}."
        )
    return found


def open_data_array(
    target: Any, *, axis: int | str = 0, missing: Missing | None = None, external: bool = False
) -> Source:
    """Open a DataArray or Variable; elements are decoded as by xarray.

    Later changes to a lazy DataArray do not change what is read. Its file is the one that is now at
    the path: only another packing or shape than xarray's is noticed. `missing` and `external` apply
    to that file; errors call positions along `axis` rows.
    """
    variable = getattr(target, "variable", target)
    _check_numbers(variable)
    names = tuple(map(str, variable.dims))
    described = Storage("xarray", dimensions=names, annotations=partial(annotations_of, variable))
    (rows,) = axis_numbers(axis, variable.ndim, described)
    if is_loaded(variable):
        refuse_arguments("an array of xarray in memory", missing=missing, external=external)
        values = np.asarray(variable.values)
        memory = replace(
            described,
            format="array in memory",
            codec="none",
            reading="each box copied",
            unit=unit_of(values.dtype),
        )
        return MemoryArray(values.view(check_stored(values.dtype)), memory)
    stored = stored_array(variable)
    found = None if stored is None else _from_stored(variable, stored, rows, missing, external)
    if found is not None:
        return found
    refuse_arguments("an array that is read through xarray", missing=missing, external=external)
    return _through_xarray(variable, described, rows)


def _check_numbers(variable: Any) -> None:
    dtype = variable.dtype
    is_number = isinstance(dtype, np.dtype) and dtype.kind != "O"
    if not is_number or (dtype.kind in "mM" and not is_loaded(variable)):
        raise UnsupportedDtypeError(
            f"elements must be numbers of a dtype of NumPy; got {dtype!r}. Load times: "
            "array.load(). Dates of cftime and text are in the file: open it by its path, or with "
            "decode_times=False. A dtype of pandas becomes numbers by array.astype('f8')."
        )
    if dtype.kind not in "mM":
        check_dtype(dtype)


def _through_xarray(variable: Any, described: Storage, axis: int) -> Source:
    chunks = _chunks(variable)
    dask = variable.chunks is not None
    how = "through xarray"
    if dask:
        how += (
            " and dask, chunk by chunk; an array of one netCDF4 file or Zarr store is read without "
            "them if xarray opens it with chunks=None"
        )
    path = variable.encoding.get("source")
    storage = replace(
        described,
        format="xarray, computed by dask" if dask else "xarray",
        path=path if isinstance(path, str) else None,
        layout="unknown" if chunks is None else f"chunks of {chunks}",
        reading=how,
        chunks=chunks,
    )
    return slices_of(variable, storage, axis)


def _chunks(variable: Any) -> tuple[int, ...] | None:
    """Return the shape of the largest chunk of dask, or of the stored chunks; None if unknown."""
    if not all(variable.shape):
        return None
    if variable.chunks is not None:
        return tuple(max(lengths) for lengths in variable.chunks)
    stored = variable.encoding.get("preferred_chunks")
    if not isinstance(stored, Mapping):
        return None
    return tuple(max(1, min(stored.get(name, 1), n)) for name, n in variable.sizes.items())


def _from_stored(
    variable: Any, stored: StoredArray, rows: int, missing: Missing | None, external: bool
) -> Source | None:
    """Return a source over the stored array; None if the variable must be read by xarray."""
    axes_shown = [axis for axis, places in enumerate(stored.places) if isinstance(places, range)]
    if len(axes_shown) != variable.ndim or not axes_shown:
        return None
    try:
        whole = _open_whole(stored, axes_shown[rows], missing, external)
    except MissingDependencyError:  # xarray may have the library
        return None
    if whole is None or whole.shape != stored.shape or whole.dtype != stored.dtype:
        return None
    if stored.decodes:
        # The attributes, or the file, may have been changed since xarray opened it.
        if packing({**variable.attrs, **variable.encoding}) != whole.storage().packed:
            return None
        whole = decoded(whole)
    if whole.dtype != np.dtype(variable.dtype).newbyteorder("="):
        return None
    axes = iter(range(variable.ndim))
    lines: list[AxisMap] = [
        (None, place) if isinstance(place, int) else (next(axes), place) for place in stored.places
    ]
    placed = AxisView(whole, tuple(lines), tuple(variable.shape), whole.dtype)
    # An empty selection: the variable would keep its values in memory once they are loaded.
    empty = variable[(slice(0, 0),) * variable.ndim]
    described = replace(
        placed.storage(),
        reading=placed.storage().reading.partition("; delivered as stored")[0],
        dimensions=tuple(map(str, variable.dims)),
        packed="",
        annotations=partial(annotations_of, empty),
    )
    return Relabelled(placed, described)


def annotations_of(variable: Any) -> Annotations:
    """Return the attributes of an ``xarray.Variable`` that are true of its values.

    xarray has removed those by which it decoded. The bounds of packed numbers are set to None.
    """
    found = {str(name): value for name, value in variable.attrs.items()}
    if any(name in variable.encoding for name in SCALED):
        found.update(dict.fromkeys(found.keys() & set(VALID)))
    return Annotations(found)


def _open_whole(
    stored: StoredArray, axis: int, missing: Missing | None, external: bool
) -> Source | None:
    if stored.key is None:
        from oocdata.formats.zarr import from_array

        refuse_arguments("a zarr.Array", external=external)
        return from_array(stored.target, axis=axis, missing=missing)
    from oocdata.formats.hdf5.file import hdf5_library
    from oocdata.formats.hdf5.opening import Hdf5Tree

    if not hdf5_library().is_hdf5(stored.target):  # netCDF of version 3
        return None
    with Hdf5Tree(stored.target, missing=missing, external=external) as tree:
        return tree.open(stored.key, axis)
