"""What an array's metadata say beside how it is stored: names of its axes, and attributes.

Version 3 keeps both in ``zarr.json`` (``dimension_names``, ``attributes``; core specification 3.0,
"Array metadata"). Version 2 knows attributes only, in ``.zattrs``; names are there under
``_ARRAY_DIMENSIONS``, the convention of xarray ("Zarr Encoding Specification").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oocdata.errors import UnknownFormatError
from oocdata.sources.zarr.metadata import ArrayMetadata, load_json
from oocdata.sources.zarr.store import Store, join

__all__ = ["Attributes", "attributes_of"]


@dataclass(frozen=True, slots=True)
class Attributes:
    """Names of the axes, and attributes, of one array.

    Attributes
    ----------
    dimensions : tuple of str
        Empty for an axis without a name; empty where none has one.
    attributes : mapping of str
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
    attributes = attributes if isinstance(attributes, dict) else {}
    names = node.get("dimension_names" if metadata.version == 3 else "_ARRAY_DIMENSIONS")
    if not isinstance(names, list) or len(names) != len(metadata.shape) or not any(names):
        return Attributes((), attributes)
    return Attributes(tuple(str(one) if one else "" for one in names), attributes)
