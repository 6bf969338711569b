"""What goes along with the numbers: attributes, names of dimensions, the fill value.

Numbers packed by the CF conventions (8.1) mean nothing without their ``scale_factor``. What one
format has no place for is named, so that nothing is lost without a word.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from oocdata.datasets.view import View
from oocdata.sources.adapt import Converted, layout_of
from oocdata.sources.chunks import Chunks
from oocdata.sources.concat import Concat
from oocdata.sources.extents import Extents, contiguous_strides
from oocdata.sources.hdf5.file import open_file
from oocdata.sources.source import Layout, Source
from oocdata.sources.zarr.chunk_files import ChunkFiles
from oocdata.writers.codec import Format
from oocdata.writers.target import holds

__all__ = ["Carried", "carried"]

_NETCDF_OWN = {
    *("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
    "_ARRAY_DIMENSIONS",
}
"""Attributes by which HDF5, netCDF4 and Zarr v2 keep what is carried as names of dimensions."""

_MOST_HDF5 = 60_000
"""Bytes of an attribute that lies in an object header, which holds 64 KiB; texts lie elsewhere."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What goes along, and what can't.

    Attributes
    ----------
    attributes : tuple of (str, value)
    dimension_names : tuple of (str or None) or None
        Rows first.
    fill_value : number or None
    lost : tuple of str
        Names of what the result has no place for.
    """

    attributes: tuple[tuple[str, Any], ...] = ()
    dimension_names: tuple[str | None, ...] | None = None
    fill_value: Any = None
    lost: tuple[str, ...] = ()


def carried(view: View, target: Format) -> Carried:
    """Return what goes along with an array that is written in a format.

    Parameters
    ----------
    view : View
    target : {"npy", "hdf5", "zarr"}

    Examples
    --------
    >>> import oocdata as ooc
    >>> carried(ooc.open(np.zeros((10, 3))), "zarr").attributes
    ()
    """
    source = view.source
    while isinstance(source, Converted | Concat):
        source = source.source if isinstance(source, Converted) else source.parts[0]
    layout = layout_of(source)
    attributes, fill, stored = _stored(layout)
    names = _names(view, source, layout, stored)
    if target == "npy":
        lost = [*attributes, *(["the names of its dimensions"] if names else [])]
        return Carried(lost=tuple(lost))
    kept: list[tuple[str, Any]] = []
    lost = []
    for name, value in attributes.items():
        made = value if target == "hdf5" else _as_json(name, value)
        if target == "hdf5":
            made = _as_hdf5(value)
        if made is None:
            lost.append(name)
        else:
            kept.append((name, made))
    if fill is not None and not holds(view.dtype, fill):
        fill = None
    return Carried(tuple(kept), names, fill, tuple(lost))


_Lengths: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]] | None
"""The shape of an array in HDF5, and of what lies in one piece: a chunk, or all."""


def _stored(layout: Layout) -> tuple[dict[str, Any], Any, _Lengths]:
    """Return attributes, fill value and lengths of an array in a file."""
    if layout.path is None or "://" in layout.path:
        return {}, None, None
    if layout.format == "HDF5" and layout.key and os.path.isfile(layout.path):
        with open_file(layout.path) as file:
            dataset = file[layout.key]
            found: dict[str, Any] = {}
            for name in dataset.attrs:
                if name not in _NETCDF_OWN:
                    try:
                        found[name] = dataset.attrs[name]
                    except (OSError, TypeError, ValueError, RuntimeError):
                        found[name] = None  # of a kind that h5py can't read
            lengths = (dataset.shape, dataset.chunks or dataset.shape)
            return found, dataset.fillvalue, lengths
    if layout.format.startswith("Zarr") and os.path.isdir(layout.path):
        return *_stored_zarr(os.path.join(layout.path, layout.key or "")), None
    return {}, None, None


def _stored_zarr(folder: str) -> tuple[dict[str, Any], Any]:
    def read(name: str) -> dict[str, Any]:
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    node = read("zarr.json")
    attributes = node.get("attributes", {}) if node else read(".zattrs")
    fill = (node or read(".zarray")).get("fill_value")
    number = isinstance(fill, int | float)
    if fill in ("NaN", "Infinity", "-Infinity"):
        fill, number = float(fill.replace("Infinity", "inf")), True
    kept = {name: value for name, value in attributes.items() if name not in _NETCDF_OWN}
    if node:
        kept = {name: _plain(name, value) for name, value in kept.items()}
    return kept, fill if number else None


def _plain(name: str, value: Any) -> Any:
    """Return a ``_FillValue`` as a number: xarray writes floats in base64 to Zarr v3."""
    if name == "_FillValue" and isinstance(value, str):
        try:
            return float(struct.unpack("<d", base64.standard_b64decode(value))[0])
        except (ValueError, struct.error):
            return value
    return value


def _as_json(name: str, value: Any) -> Any:
    """Return an attribute as JSON has it; None for what it can't say."""
    if name == "_FillValue" and np.size(value) == 1 and np.asarray(value).dtype.kind == "f":
        # So xarray reads and writes it (xarray.backends.zarr.FillValueCoder).
        number = float(np.ravel(value)[0])
        return base64.standard_b64encode(struct.pack("<d", number)).decode()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | np.generic):
        # netCDF writes single numbers as arrays of one.
        value = value.item() if value.size == 1 else value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _without_nan(value)
    return value


def _without_nan(value: Any) -> Any:
    """Return floats that JSON has not as the words that Zarr has for them."""
    if isinstance(value, list):
        made = [_without_nan(one) for one in value]
        return None if any(one is None for one in made) else made
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, int | float | str) else None


def _as_hdf5(value: Any) -> Any:
    """Return an attribute as HDF5 has it; None for what it can't hold."""
    if value is None or isinstance(value, dict):
        return json.dumps(value) if isinstance(value, dict) else None
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal length
        return None
    if array.dtype.kind not in "biufcOSU":
        return None
    if array.dtype.kind not in "OU" and array.nbytes > _MOST_HDF5:
        return None
    if array.dtype.kind in "OSU":
        texts = np.ravel(np.array(value, object)).tolist()
        if not texts or not all(map(_is_text, texts)):
            return None
    return array.astype(object) if array.dtype.kind == "U" and array.ndim else value


def _is_text(value: Any) -> bool:
    """Return whether HDF5 has a text: it ends one at a zero."""
    return "\0" not in value if isinstance(value, str) else isinstance(value, bytes)


def _names(
    view: View, source: Source, layout: Layout, stored: _Lengths
) -> tuple[str | None, ...] | None:
    """Return the names of a view's axes, rows first."""
    names = tuple(getattr(layout, "dimensions", ()))
    if isinstance(source, ChunkFiles):
        source = source.whole
    if not any(names) or len(names) != view.ndim:
        return None
    if isinstance(source, Chunks):
        axis = source.axis
    elif isinstance(source, Extents) and stored is not None:
        # The one whose places lie as far apart as the rows; cuts change the other strides.
        strides = contiguous_strides(stored[1], source.stored.itemsize)
        lying = zip(stored[0], strides, strict=True)
        rows = (source.shape[0], source.strides[0])
        axes = [number for number, one in enumerate(lying) if one == rows]
        if len(axes) != 1:
            return None
        axis = axes[0]
    else:
        return None
    ordered = [names[axis], *names[:axis], *names[axis + 1 :]]
    return tuple(name or None for name in ordered)
