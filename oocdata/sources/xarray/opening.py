"""From a DataArray to a source: by its stored array where that is known, else through xarray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from oocdata.errors import (
    ArgumentError,
    MissingDependencyError,
    MissingKeyError,
    SeveralDatasetsError,
    UnsupportedDtypeError,
)
from oocdata.sources.adapt import Rows, cut_source, layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.dimensions import Named, data_variables, packing
from oocdata.sources.memory import IN_MEMORY, Memory
from oocdata.sources.source import Source, check_axis, check_dtype
from oocdata.sources.xarray.annotations import annotations_of
from oocdata.sources.xarray.decoded import Decoded
from oocdata.sources.xarray.reader import VariableReader
from oocdata.sources.xarray.stored import StoredArray, decoding_of, stored_array

__all__ = ["array_of", "is_xarray", "open_data_array"]

Missing = Literal["error", "fill"]

_NUMBERS = "biufc"


def is_xarray(target: Any) -> bool:
    """Return whether an object is one of xarray's; its library is not imported for that."""
    names = ("DataArray", "Dataset", "Variable", "DataTree")
    return any(
        kind.__module__.partition(".")[0] == "xarray" and kind.__name__ in names
        for kind in type(target).__mro__
    )


def array_of(target: Any, key: str | None) -> Any:
    """Return the DataArray or Variable that is meant.

    Parameters
    ----------
    target : xarray.DataArray, xarray.Variable, xarray.Dataset or xarray.DataTree
    key : str, optional
        A variable of a Dataset, of a DataTree with its groups; not needed when there is one that is
        no coordinate.

    Raises
    ------
    oocdata.errors.ArgumentError
        If an array is given and a key too.
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    """
    if not hasattr(target, "data_vars"):
        if key is not None:
            raise ArgumentError(
                f"`key` must be None for a {type(target).__name__}, which is one array; got "
                f"{key!r}."
            )
        return target
    variables = list(_variables(target))
    data = set(data_variables([one.named for one in variables]))
    arrays = [one for one in variables if one.named.key in data and not one.coordinate]
    names = [one.name for one in arrays if one.dtype.kind in _NUMBERS and one.named.dimensions]
    there = ", ".join(map(repr, names)) or "none"
    if key is not None:
        try:
            found = target[key]
        except KeyError:
            found = None
        if found is None or hasattr(found, "data_vars"):
            raise MissingKeyError(
                f"`key` must name a variable of the {type(target).__name__}; got {key!r}. Its "
                f"variables: {there}."
            )
        return found
    if len(names) == 1:
        return target[names[0]]
    if not names:
        raise MissingKeyError(
            f"`target` must be an array of numbers; got a {type(target).__name__} that holds "
            + (", ".join(f"{one.name!r} ({one.dtype})" for one in arrays) or "none")
            + "."
        )
    raise SeveralDatasetsError(
        f"`target` must be one array; got a {type(target).__name__} of several: {there}. Pass one "
        f"of them: ooc.open(ds[{names[0]!r}])."
    )


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of a Dataset or DataTree.

    Attributes
    ----------
    name : hashable
        By which it is got; with its groups in a DataTree.
    named : Named
    dtype : numpy.dtype or one of pandas
    coordinate : bool
    """

    name: Any
    named: Named
    dtype: Any
    coordinate: bool


def _variables(target: Any) -> Iterator[_Variable]:
    # Asked of the class: a variable of a Dataset may have that name.
    for node in target.subtree if hasattr(type(target), "subtree") else (target,):
        group = node.relative_to(target) if node is not target else "."
        for name, one in node.variables.items():
            path = name if group == "." else f"{group}/{name}"
            said = {**one.encoding, **one.attrs}
            named = Named.of(str(path), tuple(map(str, one.dims)), said)
            yield _Variable(path, named, one.dtype, name not in node.data_vars)


def open_data_array(
    target: Any, *, axis: int | str = 0, missing: Missing = "error", external: bool = False
) -> Source:
    """Open a DataArray.

    Parameters
    ----------
    target : xarray.DataArray or xarray.Variable
        Lazy or in memory. Changing a lazy one later does not change what is read of its file. That
        is the one which has its path now: xarray does not tell whether it is still the one it
        opened, which is seen here only where it is packed or shaped in another way.
    axis : int or str
        The row axis: its number or its name.
    missing, external
        For the file behind it, as in `oocdata.open`.

    Returns
    -------
    Source
        Elements are those of the DataArray, decoded as xarray decodes them.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        For text, objects, and times.
    oocdata.errors.ArgumentError
        If it has no such axis.
    oocdata.errors.SourceError
        What the file behind it raises.

    Examples
    --------
    >>> import tempfile, xarray
    >>> data = xarray.Dataset({"u": (("time", "x"), np.ones((6, 2)))})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = data.to_zarr(folder, zarr_format=2, consolidated=False)
    ...     with xarray.open_zarr(folder, chunks=None, consolidated=False) as opened:
    ...         source = open_data_array(opened["u"][2:5], axis="time")
    >>> source.shape, source.source.shape, source.rows
    ((3, 2), (6, 2), range(2, 5))
    """
    variable = getattr(target, "variable", target)
    try:
        dtype = np.dtype(variable.dtype)
    except TypeError as error:  # one of pandas
        raise UnsupportedDtypeError(
            f"elements must be numbers of a dtype of NumPy; got {variable.dtype!r}. Turn them into "
            "numbers: array.astype('f8')."
        ) from error
    if dtype.kind == "O":
        raise UnsupportedDtypeError(
            "elements must be numbers; got Python objects, such as text or dates of cftime. Dates "
            "are numbers in the file: open it by its path, or with decode_times=False."
        )
    if dtype.kind in "mM":
        raise UnsupportedDtypeError(
            f"elements must be numbers; got times ({dtype}). Turn them into numbers "
            "(array.astype('int64')), or open the file by its path: there they are stored as "
            "numbers."
        )
    check_dtype(dtype)
    names = tuple(map(str, variable.dims))
    row_axis = check_axis(axis, variable.ndim, names=names)
    if variable._in_memory:
        values = np.moveaxis(np.asarray(variable.values), row_axis, 0)
        layout = replace(IN_MEMORY, dimensions=names).with_row_axis(row_axis)
        return Memory(values, layout, annotations_of(variable))
    stored = stored_array(variable)
    found = None if stored is None else _open_stored(variable, stored, row_axis, missing, external)
    return Chunks.of(VariableReader(variable), row_axis) if found is None else found


def _open_stored(
    variable: Any, stored: StoredArray, axis: int, missing: Missing, external: bool
) -> Source | None:
    """Return the source of the stored array; None where xarray must read it."""
    kept = [number for number, places in enumerate(stored.places) if not isinstance(places, int)]
    if len(kept) != variable.ndim:
        return None
    row_axis = kept[axis]
    rows = stored.places[row_axis]
    cuts = (*stored.places[:row_axis], *stored.places[row_axis + 1 :])
    if isinstance(rows, int) or any(isinstance(cut, np.ndarray) for cut in cuts):
        return None
    try:
        whole = _open(stored, row_axis, missing, external)
    except MissingDependencyError:  # xarray may have what is missing here
        return None
    front = (stored.shape[row_axis], *stored.shape[:row_axis], *stored.shape[row_axis + 1 :])
    if whole is None or whole.shape != front or whole.dtype != stored.dtype:
        return None
    source = cut_source(whole, cuts)  # type: ignore[arg-type]  # no array is left among them
    if decoding_of(variable):
        # By what xarray read of a file when it opened it: another may have its name by now.
        said = packing({**variable.attrs, **variable.encoding})
        if stored.key is not None and said != layout_of(whole).packed:
            return None
        # Nothing of it, which keeps how it is decoded: the variable itself loses that, and what
        # leads to its file, when its values are loaded.
        source = Decoded(source, variable[(slice(0, 0),) * variable.ndim])
    elif source.dtype != np.dtype(variable.dtype).newbyteorder("="):
        return None
    every = isinstance(rows, range) and rows == range(stored.shape[row_axis])
    return source if every else Rows(source, rows)


def _open(stored: StoredArray, axis: int, missing: Missing, external: bool) -> Source | None:
    if stored.key is None:
        from oocdata.sources import zarr

        return zarr.from_array(stored.target, axis=axis, missing=missing)
    from oocdata.sources import hdf5

    if not hdf5.is_hdf5(stored.target):  # netCDF of version 3
        return None
    return hdf5.open_hdf5(stored.target, stored.key, axis=axis, missing=missing, external=external)
