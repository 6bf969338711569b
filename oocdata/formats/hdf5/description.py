"""Describe HDF5 datasets: dtype, axes, attributes and layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from typing import Any

import h5py
import numpy as np
from numpy.lib.format import drop_metadata

from oocdata.engines.dtypes import check_stored, unit_of
from oocdata.engines.source import Annotations, Storage
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import PACKING, TIME, as_text, packing, units_of_numbers
from oocdata.formats.hdf5.file import fill_value
from oocdata.formats.hdf5.storage import codec_name, kind_of

_MOST_PLACES = 1 << 16
"""Longest coordinate whose direction is looked at when a file is opened: grids are shorter."""

READING = {
    "contiguous": "each row by its byte offset, straight into the batch",
    "chunked": "whole chunks through h5py, kept while their rows are needed",
    "compact": "whole from the file's header through h5py",
    "virtual": "runs of rows through h5py, which puts them together from their sources",
    "decoded": "whole chunks, decoded in threads without HDF5's lock and kept while their rows are "
    "needed",
}
"""How each kind of storage is read; "decoded" is for chunks that are decoded outside HDF5."""

_DIMENSIONS = {
    *("DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
}
"""Attributes in which HDF5 and netCDF4 store dimensions."""

EMPTY = ("MATLAB_empty", "value_type")
"""Attributes with which MATLAB and pandas mark an array without elements."""

_OF_SCALES = {"CLASS", "NAME"}
"""Attributes of dimension scales only; in other datasets they are the user's."""


def as_complex(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a complex dtype for pairs of floats as MATLAB stores them, else the dtype itself."""
    for size in (4, 8):
        for order in "<>":
            part = f"{order}f{size}"
            if dtype == np.dtype([("real", part), ("imag", part)]):
                return np.dtype(f"{order}c{2 * size}")
    return dtype


def stored_dtype(dataset: Any) -> tuple[np.dtype[Any], bool]:
    """Return the stored dtype of an open dataset, and whether its rows are of varying length.

    The dtype is without h5py's metadata; for rows of varying length it is that of their numbers,
    or object for texts and bytes. Raises `UnsupportedDtypeError` for references, dtypes that NumPy
    lacks, overlapping fields, and datasets that stand for an empty array.
    """
    try:
        stored: np.dtype[Any] = dataset.dtype
    except (TypeError, ValueError) as error:  # ValueError: floats longer than NumPy's longest
        raise UnsupportedDtypeError(
            f"elements must be bool, integer, float or complex numbers; h5py knows no dtype for "
            f"these: {error}."
        ) from error
    varying = _varying_dtype(dataset)
    if varying is not None:
        return varying if varying.hasobject else check_stored(drop_metadata(varying)), True
    if stored.kind == "O":
        reference = "ref" in (stored.metadata or {})
        what = "references" if reference else "text or rows of varying length"
        raise UnsupportedDtypeError(f"elements must be numbers of a fixed size; got {what}.")
    if _overlap(stored):
        raise UnsupportedDtypeError(
            "every field must have the size of a number of NumPy's; h5py takes some of these for "
            f"larger ones, which would overlap others: {stored}. Save each field as an array."
        )
    if (placeholder := _empty_placeholder(dataset, stored)) is not None:
        raise UnsupportedDtypeError(
            f"an array must hold an element; this one was empty, and {placeholder}."
        )
    # The metadata are h5py's names of an enum.
    return check_stored(as_complex(drop_metadata(stored))), False


def _varying_dtype(dataset: Any) -> np.dtype[Any] | None:
    """Return the dtype of the numbers in rows of varying length, or object for texts and bytes.

    None for other rows, and for varying ones that can't be read.
    """
    stored: np.dtype[Any] = dataset.dtype
    text = h5py.check_string_dtype(stored)
    if text is not None:
        return stored if text.length is None else None
    try:
        inner = h5py.check_vlen_dtype(stored)
    except TypeError:  # of numbers that NumPy lacks
        return None
    if not isinstance(inner, np.dtype) or inner.hasobject:
        return None
    if inner not in (np.uint8, np.int8):
        return inner
    return stored if dataset.ndim else None


def _overlap(dtype: np.dtype[Any]) -> bool:
    """Return whether fields overlap, which those of an HDF5 compound never do."""
    fields = sorted((dtype.fields or {}).values(), key=itemgetter(1))
    overlap = any(
        kind.itemsize > after[1] - offset for (kind, offset, *_), after in pairwise(fields)
    )
    return overlap or any(_overlap(kind.base) for kind, *_ in fields)


def _empty_placeholder(dataset: Any, stored: np.dtype[Any]) -> str | None:
    """Return a description of what a writer stored instead of an empty array, or None."""
    matlab, pandas = EMPTY
    if stored == np.uint64 and dataset.ndim == 1 and dataset.attrs.get(matlab):
        return f"MATLAB stored the lengths of its axes, {tuple(dataset[()].tolist())}"
    if dataset.size == 1 and pandas in dataset.attrs and "shape" in dataset.attrs:
        return "pandas stored a number in its place"
    return None


def is_plain(dataset: Any) -> bool:
    """Return whether the stored bytes are elements of the dtype.

    They are not for bfloat16 or 12-bit integers, which HDF5 converts.
    """
    kind = dataset.id.get_type()
    if dataset.dtype.kind == "S":  # with other padding, HDF5 replaces the padding by zeros
        return bool(kind.get_strpad() == h5py.h5t.STR_NULLPAD)
    return bool(h5py.h5t.py_create(dataset.dtype, logical=True) == kind)


def describe(
    dataset: Any, path: str, key: str | None, scales: Sequence[Any], units: Mapping[str, Any]
) -> Storage:
    """Return how a dataset is stored; `opening` adds the files and how to open it again.

    `units` are attributes that bounds have from their coordinate.
    """
    layout = kind = kind_of(dataset)
    if kind == "chunked":
        layout = f"chunks of {dataset.chunks}"
    elif kind == "virtual":
        layout = f"virtual, mappings: {len(dataset.virtual_sources())}"
    names = dimension_names(dataset, scales)
    attributes = {**units, **attributes_of(dataset, (*PACKING, *TIME))}
    return Storage(
        format="HDF5",
        path=path,
        key=key,
        layout=layout + _by_matlab(dataset),
        codec=codec_name(dataset),
        stored_bytes=None if kind == "virtual" else dataset.id.get_storage_size(),
        reading=READING[kind],
        dimensions=names,
        packed=packing(attributes),
        unit=unit_of(dataset.dtype),
        units=units_of_numbers(attributes),
        categorical=h5py.check_enum_dtype(dataset.dtype) is not None,
    )


def scales_of(dataset: Any) -> list[Any]:
    """Return the first scale of each axis; None if there is none, or it was deleted."""
    return [_scale(dimension) for dimension in dataset.dims]


def dimension_names(dataset: Any, scales: Sequence[Any] | None = None) -> tuple[str, ...]:
    """Return the names of a dataset's axes; an empty tuple if none has a name.

    The name of an axis is its label, else the name of its first dimension scale (HDF5 Dimension
    Scale Specification), as in netCDF4. The axis of a one-dimensional scale has the scale's own
    name (netCDF file format, "Dimensions with Coordinate Variable"); a scale of several axes lists
    the numbers of its dimensions.
    """
    if dataset.ndim == 1 and dataset.is_scale:
        return (_last(dataset.name),)
    numbers = attributes_of(dataset, ["_Netcdf4Coordinates"]) if dataset.is_scale else {}
    if numbers:
        numbered = _numbered_dimensions(dataset.parent)
        return tuple(numbered.get(number, "") for number in numbers["_Netcdf4Coordinates"])
    scales = scales_of(dataset) if scales is None else scales
    group = dataset.parent if any(scales) else None
    names = [
        dimension.label or (_name_of(scale, group) if scale else "")
        for dimension, scale in zip(dataset.dims, scales, strict=True)
    ]
    return tuple(names) if any(names) else ()


def _name_of(scale: Any, group: Any) -> str:
    """Return the name of a dimension's scale, from the links of a group or of those around it.

    HDF5 follows all links of the file until it finds it: 25 ms in one of 500 groups.
    """
    wanted, names = (h5py.h5l.TYPE_HARD, h5py.h5o.get_info(scale.id).addr), list[bytes]()

    def note(link: bytes, info: Any) -> bool | None:  # a value ends the iteration
        names.extend([link] if (info.type, info.u) == wanted else [])
        return bool(names) or None

    while not group.id.links.iterate(note, info=True) and group.name != "/":
        group = group.parent
    return names[0].decode("utf-8", "surrogateescape") if names else _last(scale.name)


def _numbered_dimensions(group: Any) -> dict[int, str]:
    """Return the names of netCDF4's dimensions in a group and the groups around it, by number."""
    groups, names = [group], dict[int, str]()
    while groups[-1].name != "/":
        groups.append(groups[-1].parent)
    for group in reversed(groups):
        for name, found in ((name, group.get(name)) for name in group):
            if isinstance(found, h5py.Dataset) and found.is_scale:
                names[found.attrs.get("_Netcdf4Dimid")] = name
    return names


def directions(names: Sequence[str], scales: Sequence[Any], rows: int | None) -> dict[str, str]:
    """Return whether the coordinates of all axes but that of rows rise or fall, by name."""
    found = {}
    for axis, (name, scale) in enumerate(zip(names, scales, strict=False)):
        if axis == rows or scale is None or scale.ndim != 1 or scale.size > _MOST_PLACES:
            continue
        with suppress(OSError, TypeError, ValueError, RuntimeError):  # structured, or damaged
            numbers = scale[()]
            before, after = numbers[:-1], numbers[1:]
            if len(after) and (before < after).all():
                found[name] = "rises"
            elif len(after) and (before > after).all():
                found[name] = "falls"
    return found


def _scale(dimension: Any) -> Any:
    try:
        return dimension[0] if len(dimension) else None
    except (KeyError, ValueError, RuntimeError, OSError):
        return None


def _by_matlab(dataset: Any) -> str:
    """Return a note on the axes of a ``.mat`` of version 7.3, which are reversed; else empty."""
    if dataset.ndim > 1 and "MATLAB_class" in dataset.attrs:
        return f", in MATLAB {dataset.shape[::-1]}: its axes come in reverse"
    return ""


def _last(name: str | None) -> str:
    return (name or "").rpartition("/")[2]


def is_dimension_only(dataset: Any) -> bool:
    """Return whether a dataset is a netCDF dimension with a length but no values.

    Its attribute ``NAME`` says so (netCDF file format, "Dimensions without Coordinate Variables").
    """
    name = dataset.attrs.get("NAME") if dataset.is_scale else None
    return as_text(name).startswith("This is a netCDF dimension but not a netCDF variable")


def annotations_of(dataset: Any) -> Annotations:
    """Return the attributes of an open dataset, except those of dimensions, and its fill value."""
    excluded = _DIMENSIONS | (_OF_SCALES if dataset.is_scale else set())
    names = [name for name in dataset.attrs if name not in excluded]
    attributes = dict.fromkeys(names) | attributes_of(dataset, names)
    categories = attributes.get("categories")
    if isinstance(categories, h5py.Reference) and categories:  # AnnData before 0.8
        named = dataset.file[categories]
        is_text = h5py.check_string_dtype(named.dtype) is not None
        attributes["categories"] = tuple((named.asstr() if is_text else named)[()].tolist())
    if codes := h5py.check_enum_dtype(dataset.dtype):
        attributes["categories"] = _by_code(codes)
    return Annotations(attributes, fill_value(dataset))


def attributes_of(dataset: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the named attributes, without those that are absent or that h5py can't read."""
    attributes, found = dataset.attrs, {}
    for name in names:
        if name in attributes:
            with suppress(OSError, TypeError, ValueError, RuntimeError):
                found[name] = attributes[name]
    return found


def _by_code(codes: Mapping[str, int]) -> tuple[str, ...] | dict[int, str]:
    """Return the names of an enum by code: a tuple if codes count from 0, else a dict."""
    names = {int(code): name for name, code in codes.items()}
    ordered = {code: names[code] for code in sorted(names)}
    return tuple(ordered.values()) if list(ordered) == list(range(len(names))) else ordered
