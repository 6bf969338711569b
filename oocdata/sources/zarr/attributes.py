"""What an array's metadata say beside how it is stored: names of its axes, and attributes.

Version 3 keeps both in ``zarr.json`` (``dimension_names``, ``attributes``; core specification 3.0,
"Array metadata"). Version 2 knows attributes only, in ``.zattrs``; names are there under
``_ARRAY_DIMENSIONS``, the convention of xarray ("Zarr Encoding Specification"), whose missing value
is then the array's fill value. In version 3 it is an attribute, floats of it in base64.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocdata.errors import UnknownFormatError
from oocdata.sources.zarr.metadata import ArrayMetadata, load_json
from oocdata.sources.zarr.store import Store, join

__all__ = ["Attributes", "attributes_of", "fill_value_of"]

_NAMES = "_ARRAY_DIMENSIONS"


@dataclass(frozen=True, slots=True)
class Attributes:
    """Names of the axes, and attributes, of one array.

    Attributes
    ----------
    dimensions : tuple of str
        Empty for an axis without a name; empty where none has one.
    attributes : mapping of str
        Without the names; ``_FillValue`` as the number that it stands for.
    """

    dimensions: tuple[str, ...]
    attributes: Mapping[str, Any]


def attributes_of(store: Store, key: str, metadata: ArrayMetadata) -> Attributes:
    """Return an array's names and attributes; none where they can't be read.

    Reading needs none of them, so what is wrong with them is no error.

    Examples
    --------
    >>> import tempfile, zarr
    >>> from oocdata.sources.zarr.hierarchy import find_array
    >>> from oocdata.sources.zarr.store import store_of
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = ("time", "lat")
    ...     _ = zarr.create_array(folder, shape=(4, 3), dtype="f4", dimension_names=names)
    ...     key, metadata = find_array(store_of(folder), None, folder)
    ...     attributes_of(store_of(folder), key, metadata).dimensions
    ('time', 'lat')
    """
    name = "zarr.json" if metadata.version == 3 else ".zattrs"
    try:
        text = store.read(join(key, name))
        node = {} if text is None else load_json(text, store.path, key or None)
    except UnknownFormatError:
        node = {}
    attributes = node.get("attributes") if metadata.version == 3 else node
    attributes = dict(attributes) if isinstance(attributes, dict) else {}
    if metadata.version == 3:
        names = node.get("dimension_names")
        if "_FillValue" in attributes:
            attributes["_FillValue"] = _decoded(attributes["_FillValue"], metadata.dtype)
    else:
        names = attributes.pop(_NAMES, None)
        fill_value = fill_value_of(metadata)
        if names is not None and fill_value is not None:
            attributes.setdefault("_FillValue", fill_value)
    if not isinstance(names, list) or len(names) != len(metadata.shape) or not any(names):
        return Attributes((), attributes)
    return Attributes(tuple(str(one) if one else "" for one in names), attributes)


def fill_value_of(metadata: ArrayMetadata) -> Any:
    """Return the fill value as a number; None where the array has none, or none that is known.

    Examples
    --------
    >>> from oocdata.sources.zarr.metadata import parse_array
    >>> text = b'''{"zarr_format": 2, "shape": [10], "chunks": [4], "dtype": "<f4",
    ...            "order": "C", "compressor": null, "filters": null, "fill_value": "NaN"}'''
    >>> fill_value_of(parse_array(text, 2, "a.zarr", None))
    nan
    """
    value = json.loads(metadata.fill_value)
    if metadata.dtype.kind == "c" and isinstance(value, list) and len(value) == 2:
        parts = [_number(part) for part in value]
        return None if None in parts else complex(*parts)
    return _number(value)


def _number(value: Any) -> Any:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return value if isinstance(value, int | float) else None


def _decoded(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the number that xarray has encoded (xarray.backends.zarr.FillValueCoder)."""
    try:
        if dtype.kind in "fc":
            texts = [value] if isinstance(value, str) else value
            parts = [struct.unpack("<d", base64.standard_b64decode(text))[0] for text in texts]
            return parts[0] if dtype.kind == "f" else complex(*parts)
    except (ValueError, TypeError, struct.error):  # not as xarray writes it
        pass
    return value
