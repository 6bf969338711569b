"""What a file says of a dataset, in words and dtypes: for `opening`, which makes a source of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from typing import Any

import h5py
import numpy as np
from numpy.lib.format import drop_metadata

from oocdata.engines.source import Annotations, Storage, check_stored, unit_of
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import PACKING, TIME, as_text, packing
from oocdata.formats.hdf5.file import fill_value
from oocdata.formats.hdf5.storage import Stored, codec_name

__all__ = [
    "EMPTY",
    "READING",
    "all_values",
    "annotations_of",
    "attributes_of",
    "describe",
    "dimension_names",
    "is_dimension_only",
    "is_plain",
    "stored_dtype",
]

READING = {
    "contiguous": "each row by its byte offset, straight into the batch",
    "chunked": "whole chunks through h5py, kept while their rows are needed",
    "compact": "whole from the file's header through h5py",
    "virtual": "runs of rows through h5py, which puts them together from their sources",
    "decoded": "whole chunks, decoded in threads without HDF5's lock and kept while their rows are "
    "needed",
}
"""How each kind of storage is read; filtered chunks whose filters are undone here are decoded."""

_BYTES = (np.dtype(np.uint8), np.dtype(np.int8))

_DIMENSIONS = {
    *("DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
}
"""Attributes by which HDF5 and netCDF4 keep dimensions."""

_MOST_COLUMNS = 20
"""Names of columns that are told."""

EMPTY = ("MATLAB_empty", "value_type")
"""Attributes of MATLAB and of pandas that say that an array has no elements."""

_OF_SCALES = {"CLASS", "NAME"}
"""Those of a dimension scale; other datasets may have attributes of these names."""


def as_complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of complex numbers for pairs of floats, as MATLAB keeps them.

    Examples
    --------
    >>> as_complex(np.dtype([("real", ">f4"), ("imag", ">f4")]))
    dtype('>c8')
    >>> as_complex(np.dtype("f4"))
    dtype('float32')
    """
    for size in (4, 8):
        for order in "<>":
            part = f"{order}f{size}"
            if dtype == np.dtype([("real", part), ("imag", part)]):
                return np.dtype(f"{order}c{2 * size}")
    return dtype


def stored_dtype(dataset: Any) -> tuple[np.dtype[Any], bool]:
    """Return the dtype of an open dataset as stored, and whether rows are of varying length.

    Checked, without metadata of h5py; of rows of varying length that of their numbers, or an
    object's. Text, references, rows without a field of numbers, and what stands for an empty array,
    are an `UnsupportedDtypeError`.
    """
    try:
        stored: np.dtype[Any] = dataset.dtype
    except (TypeError, ValueError) as error:  # ValueError: floats longer than any of NumPy's
        raise UnsupportedDtypeError(
            f"elements must be bool, integer, float or complex numbers; h5py knows no dtype for "
            f"these: {error}."
        ) from error
    varying = _varying_numbers(dataset)
    if varying is not None:
        return check_stored(drop_metadata(varying)), True
    if _is_bytes(dataset):
        return stored, True
    if stored.kind == "O":
        reference = "ref" in (stored.metadata or {})
        what = "references" if reference else "text or rows of varying length"
        raise UnsupportedDtypeError(f"elements must be numbers of a fixed size; got {what}.")
    if _overlap(stored):
        raise UnsupportedDtypeError(
            "every field must have the size of a number of NumPy's; h5py takes some of these for "
            f"larger ones, which would lie over others: {stored}. Save the fields on their own."
        )
    if (stood_for := _stands_for_none(dataset, stored)) is not None:
        raise UnsupportedDtypeError(
            f"an array must hold an element; this one was empty, and {stood_for}."
        )
    # In its metadata h5py keeps the names of an enum.
    return check_stored(as_complex(drop_metadata(stored))), False


def _overlap(dtype: np.dtype[Any]) -> bool:
    """Return whether fields lie over one another, as those of no compound of HDF5 do."""
    fields = sorted((dtype.fields or {}).values(), key=itemgetter(1))
    return any(
        kind.itemsize > after[1] - place for (kind, place, *_), after in pairwise(fields)
    ) or (any(_overlap(kind.base) for kind, *_ in fields))


def _stands_for_none(dataset: Any, stored: np.dtype[Any]) -> str | None:
    """Return in words what a maker wrote in the place of an empty array; None where it did not."""
    matlab, pandas = EMPTY
    if stored == np.uint64 and dataset.ndim == 1 and dataset.attrs.get(matlab):
        return f"MATLAB stored the lengths of its axes, {tuple(dataset[()].tolist())}"
    if dataset.size == 1 and pandas in dataset.attrs and "shape" in dataset.attrs:
        return "pandas stored a number in its place"
    return None


def _varying_numbers(dataset: Any) -> np.dtype[Any] | None:
    """Return the dtype of numbers in rows of varying length; None for other datasets, and bytes."""
    try:
        found = h5py.check_vlen_dtype(dataset.dtype)
    except TypeError:  # of numbers that NumPy hasn't
        return None
    numbers = isinstance(found, np.dtype) and not found.hasobject and found not in _BYTES
    return found if numbers else None


def _is_bytes(dataset: Any) -> bool:
    """Return whether rows are texts or sequences of bytes, each of its own length."""
    kind = dataset.dtype
    text = h5py.check_string_dtype(kind)
    inner = None if text else h5py.check_vlen_dtype(kind)
    long = (text and text.length is None) or (inner is not None and np.dtype(inner) in _BYTES)
    return bool(long and dataset.ndim)


def is_plain(dataset: Any) -> bool:
    """Return whether the bytes are what the dtype says (not so for bfloat16 or 12-bit integers)."""
    kind = dataset.id.get_type()
    if dataset.dtype.kind == "S":  # else HDF5 turns what stands for the end of text into zeros
        return bool(kind.get_strpad() == h5py.h5t.STR_NULLPAD)
    return bool(h5py.h5t.py_create(dataset.dtype, logical=True) == kind)


def describe(dataset: Any, path: str, key: str | None, stored: Stored) -> Storage:
    """Return how a dataset is stored; what it is opened and read by is left to `opening`."""
    words = {"chunked": f"chunks of {dataset.chunks}"}
    if stored.kind == "virtual":
        words["virtual"] = f"virtual, mappings: {len(dataset.virtual_sources())}"
    names = dimension_names(dataset)
    # To read `units` of every array would cost a quarter of what opening one does.
    told = (*PACKING, *TIME) if dataset.ndim < 2 else PACKING
    return Storage(
        format="HDF5",
        path=path,
        key=key,
        layout=words.get(stored.kind, stored.kind) + _shorter(dataset, names) + _by_maker(dataset),
        codec=codec_name(dataset),
        stored_bytes=None if stored.kind == "virtual" else dataset.id.get_storage_size(),
        reading=READING[stored.kind],
        dimensions=names,
        packed=packing(attributes_of(dataset, told)),
        unit=unit_of(dataset.dtype),
    )


def dimension_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of a dataset's axes; empty where none has a name.

    A label, else the name of the first dimension scale (HDF5 Dimension Scale Specification), which
    is how netCDF4 keeps them; a one-dimensional scale has its own name (netCDF file format,
    "Dimensions with Coordinate Variable").
    """
    if dataset.ndim == 1 and dataset.is_scale:
        return (_last(dataset.name),)
    names = []
    for dimension in dataset.dims:
        scale = _scale(dimension)
        names.append(dimension.label or ("" if scale is None else _last(scale.name)))
    return tuple(names) if any(names) else ()


def _scale(dimension: Any) -> Any:
    """Return the first scale of a dimension; None where there is none, or it was deleted."""
    try:
        return dimension[0] if len(dimension) else None
    except (KeyError, ValueError, RuntimeError, OSError):
        return None


def _shorter(dataset: Any, names: tuple[str, ...]) -> str:
    """Say where a dataset ends before its dimension: netCDF shows fill values for the rest.

    Variables of an unlimited dimension are as long as what was written to each (netCDF file
    format, "Dimensions").
    """
    for number, name in enumerate(names):
        scale = _scale(dataset.dims[number])
        if scale is not None and scale.ndim == 1 and scale.size > dataset.shape[number]:
            return f", {dataset.shape[number]} of the {scale.size} along {name!r} written"
    return ""


def _by_maker(dataset: Any) -> str:
    """Say what the attributes of a maker tell of the axes.

    MATLAB (``.mat`` of version 7.3) keeps them in reverse. pandas (``format="fixed"``) keeps the
    columns of one dtype as ``block0_values``, and their names beside it.
    """
    if dataset.ndim == 2 and dataset.name and "transposed" in dataset.attrs:
        items = dataset.parent.get(_last(dataset.name).replace("_values", "_items"))
        named = isinstance(items, type(dataset)) and items.shape == dataset.shape[1:]
        if named and items.dtype.kind == "S" and len(items) <= _MOST_COLUMNS:
            return f", columns {', '.join(text.decode('utf-8', 'replace') for text in items)}"
    if dataset.ndim > 1 and "MATLAB_class" in dataset.attrs:
        return f", in MATLAB {dataset.shape[::-1]}: its axes come in reverse"
    return ""


def _last(name: str | None) -> str:
    return (name or "").rpartition("/")[2]


def is_dimension_only(dataset: Any) -> bool:
    """Return whether this is a netCDF dimension that has a length and no values.

    Its attribute ``NAME`` says so (netCDF file format, "Dimensions without Coordinate Variables").
    """
    said = dataset.attrs.get("NAME") if dataset.is_scale else None
    return as_text(said).startswith("This is a netCDF dimension but not a netCDF variable")


def annotations_of(dataset: Any) -> Annotations:
    """Return attributes and fill value of an open dataset, without those of dimensions."""
    left_out = _DIMENSIONS | (_OF_SCALES if dataset.is_scale else set())
    there = [name for name in dataset.attrs if name not in left_out]
    attributes = dict.fromkeys(there) | attributes_of(dataset, there)
    told = attributes.get("categories")
    if isinstance(told, h5py.Reference) and told:  # AnnData before 0.8
        attributes["categories"] = tuple(all_values(dataset.file[told]))
    if names := h5py.check_enum_dtype(dataset.dtype):
        attributes["categories"] = _by_code(names)
    return Annotations(attributes, fill_value(dataset))


def attributes_of(dataset: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return attributes of some names that are there, and of a kind that h5py can read."""
    attributes, found = dataset.attrs, {}
    for name in names:
        if name in attributes:
            with suppress(OSError, TypeError, ValueError, RuntimeError):
                found[name] = attributes[name]
    return found


def all_values(dataset: Any) -> Any:
    """Return all values of an open dataset as Python's, text too."""
    text = h5py.check_string_dtype(dataset.dtype) is not None
    return (dataset.asstr() if text else dataset)[()].tolist()


def _by_code(names: Mapping[str, int]) -> tuple[str, ...] | dict[int, str]:
    """Return the names of an enum so that each is found by its number.

    Examples
    --------
    >>> _by_code({"cloudy": 1, "clear": 0}), _by_code({"clear": 0, "missing": 255})
    (('clear', 'cloudy'), {0: 'clear', 255: 'missing'})
    """
    found = {int(code): name for name, code in names.items()}
    ordered = {code: found[code] for code in sorted(found)}
    return tuple(ordered.values()) if list(ordered) == list(range(len(found))) else ordered
