"""Parse the metadata of Zarr arrays, without zarr-python and without reading data.

``.zarray`` (storage specification version 2) and ``zarr.json`` (core specification version 3.0,
"Array metadata"; sharding: ZEP 2). Importing zarr-python takes up to a third of a second.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from oocdata.engines.dtypes import (
    SMALL_FLOATS,
    check_stored,
    is_small_float,
    named_dtype,
    unit_of,
)
from oocdata.engines.source import Annotations
from oocdata.errors import SourceError, UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.zarr.attributes import fill_element, names_and_attributes
from oocdata.formats.zarr.codecs import CodecChain, describe_v2, describe_v3, named

_DTYPES_V3 = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *SMALL_FLOATS,
}
_TEXT = np.dtype(object)
"""dtype of text of varying length: Python's str."""
_WRONG = LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SyntaxError
"""Errors of metadata of other types or values, and of NumPy, which parses dtypes as Python."""
_FIELDS_V3 = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
    *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
}


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Parsed metadata of an array."""

    version: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """Native byte order, as delivered."""
    object_shape: tuple[int, ...]
    """Shape of a stored object: a chunk, or a shard of several chunks."""
    prefix: str
    separator: str
    """Joins the prefix and the grid position into the name of a stored object."""
    fill_value: str
    """As JSON."""
    codecs: CodecChain
    unit: str
    """As `oocdata.engines.source.Storage.unit`."""
    stored_dtype: np.dtype[Any]
    """dtype of stored elements. For big-endian small floats, whose dtype has no byte order, an
    integer dtype."""
    dimensions: tuple[str, ...]
    """Names of the axes, "" for one without a name; empty if no axis has one."""
    absent: Any = field(compare=False)
    """The element of absent chunks; see `attributes.fill_element`."""
    annotations: Annotations = field(compare=False, repr=False)

    def annotate(self) -> Annotations:
        """Return attributes and fill value."""
        return self.annotations

    @property
    def sharded(self) -> bool:
        """Whether a stored object holds several chunks."""
        return self.codecs.chunk_shape is not None

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of the elements that are decoded together: the innermost chunk."""
        return self.codecs.chunk_shape or self.object_shape

    @property
    def grid(self) -> tuple[int, ...]:
        """Stored objects along each axis."""
        return chunk_grid(self.shape, self.object_shape)

    @property
    def chunks_per_object(self) -> tuple[int, ...]:
        """Chunks of a stored object along each axis: all 1 without shards."""
        return tuple(
            whole // step for whole, step in zip(self.object_shape, self.chunk_shape, strict=True)
        )

    def name(self, place: Sequence[int]) -> str:
        """Return the name of the stored object at a grid position."""
        parts = [self.prefix] if self.prefix else []
        return self.separator.join([*parts, *map(str, place)]) or "0"

    @property
    def layout(self) -> str:
        """Description of chunks and shards."""
        if self.sharded:
            return f"shards of {self.object_shape} holding chunks of {self.chunk_shape}"
        return f"chunks of {self.chunk_shape}"


def load_json(text: bytes) -> dict[str, Any]:
    """Parse the JSON object of a metadata file, or raise `UnknownFormatError`."""
    try:
        node = json.loads(text)
    except (ValueError, RecursionError) as error:  # JSON and UTF-8 errors are both ValueError
        raise unreadable(f"must be JSON; {error}") from error
    if not isinstance(node, dict):
        raise unreadable(f"must be a JSON object; got {type(node).__name__}")
    return node


def parse_array(
    node: dict[str, Any], version: int, attributes: bytes | None = None
) -> ArrayMetadata:
    """Parse the content of a ``.zarray`` (version 2) or ``zarr.json`` (version 3).

    `attributes` is the content of the ``.zattrs`` beside a ``.zarray``. Objects other than text,
    and irregular grids, are refused.
    """
    annotated = node
    if version == 2:
        annotated = {}
        with suppress(UnknownFormatError):
            annotated = load_json(attributes or b"")
    try:
        if node["zarr_format"] != version:
            raise ValueError(f"zarr_format must be {version}; got {node['zarr_format']!r}")
        shape, fill = _lengths("shape", node["shape"], 0), node["fill_value"]
        parse = _version_3 if version == 3 else _version_2
        dtype, chunks, prefix, separator, codecs = parse(node, len(shape))
        unit, stored = unit_of(dtype), dtype if dtype == _TEXT else check_stored(dtype)
        delivered = stored.newbyteorder("=")
        if version == 3:
            _check_fill_type(fill, delivered)
            stored = _stored_v3(codecs.endian, stored)
        absent = fill_element(fill, stored if dtype.names else dtype.newbyteorder("="))
        if unit:
            absent = int(absent.view(np.int64))
        is_number = delivered.kind in "biufc" or is_small_float(delivered)
        number = absent if is_number and (unit or fill is not None) else None
        missing = None if unit else number  # of dates it is NaT, as it is in memory
        names, others = names_and_attributes(version, annotated, missing, len(shape), delivered)
    except SourceError:
        raise
    except _WRONG as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is wrong: {error}"
        raise unreadable(reason) from error
    return ArrayMetadata(
        version=version,
        shape=shape,
        dtype=delivered,
        object_shape=chunks,
        prefix=prefix,
        separator=separator,
        fill_value=json.dumps(fill),
        codecs=codecs,
        unit=unit,
        stored_dtype=stored,
        dimensions=names,
        absent=absent,
        annotations=Annotations(others, number),
    )


_Parsed: TypeAlias = tuple[np.dtype[Any], tuple[int, ...], str, str, CodecChain]
"""dtype, shape of an object, prefix and separator of its name, and codecs."""


def _version_2(node: dict[str, Any], ndim: int) -> _Parsed:
    chunks = _lengths("chunks", node["chunks"], 1, ndim)
    filters = node.get("filters") or []
    text = node["dtype"] == "|O" and [codec["id"] for codec in filters] == ["vlen-utf8"]
    separator = node.get("dimension_separator", ".")
    if separator not in (".", "/") or node["order"] not in ("C", "F"):
        raise ValueError(
            f"dimension_separator must be '.' or '/' and order 'C' or 'F'; got {separator!r} "
            f"and {node['order']!r}"
        )
    chain = describe_v2(node["compressor"], filters)
    if node["order"] == "F" and ndim > 1:
        chain = replace(chain, axes=tuple(reversed(range(ndim))))
    return _TEXT if text else _dtype_v2(node["dtype"]), chunks, "", separator, chain


def _version_3(node: dict[str, Any], ndim: int) -> _Parsed:
    for name, value in node.items():
        optional = isinstance(value, dict) and value.get("must_understand") is False
        if name not in _FIELDS_V3 and not optional:
            raise ValueError(f"the field {name!r} is not one of version 3 and must be understood")
    grid, grid_options = named(node["chunk_grid"])
    if grid != "regular":
        raise UnknownFormatError(
            f"the chunk grid must be regular; got {grid!r}. Write the array again with chunks of "
            "one shape."
        )
    encoding, options = named(node["chunk_key_encoding"])
    if encoding not in ("default", "v2"):
        raise ValueError(f"chunk_key_encoding must be 'default' or 'v2'; got {encoding!r}")
    separator = options.get("separator", "/" if encoding == "default" else ".")
    if separator not in (".", "/"):
        raise ValueError(f"separator must be '.' or '/'; got {separator!r}")
    if node.get("storage_transformers"):
        raise ValueError("storage_transformers must be empty")
    chunks = _lengths("chunk_shape", grid_options["chunk_shape"], 1, ndim)
    prefix, chain = "c" if encoding == "default" else "", describe_v3(node["codecs"], chunks)
    return _dtype_v3(node["data_type"]), chunks, prefix, separator, chain


def _dtype_v3(value: Any) -> np.dtype[Any]:
    """Return the dtype of a data type of version 3, or of an extension of zarr-python.

    Extensions: https://github.com/zarr-developers/zarr-extensions, "data-types".
    """
    name, options = (value, {}) if isinstance(value, str) else named(value)
    if name in _DTYPES_V3:
        return named_dtype(name)
    match name:
        case "string":
            return _TEXT
        case "numpy.datetime64" | "numpy.timedelta64":
            kind = "M8" if name == "numpy.datetime64" else "m8"
            return np.dtype(f"{kind}[{options['scale_factor']}{options['unit']}]")
        case "null_terminated_bytes":
            return np.dtype(f"S{options['length_bytes']}")
        case "fixed_length_utf32":
            return np.dtype(f"U{options['length_bytes'] // 4}")
        case "structured" | "struct":
            pairs = [
                (field["name"], field["data_type"]) if isinstance(field, dict) else field
                for field in options["fields"]
            ]
            return np.dtype([(field, _dtype_v3(data_type)) for field, data_type in pairs])
    raise UnsupportedDtypeError(
        "elements must be bool, integer, float or complex numbers, dates, or text; got the Zarr "
        f"data type {name!r}. Save the array again with a numeric dtype."
    )


def _stored_v3(endian: str | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype == _TEXT or dtype.itemsize == 1 or dtype.kind == "S":
        return dtype
    if dtype.names and endian is None:  # as zarr-python 3.1 writes it, on machines of today
        endian = "little"
    if endian not in ("little", "big"):  # a default would be a guess
        raise ValueError(f"endian must be 'little' or 'big'; got {endian!r}")
    if is_small_float(dtype) and endian == "big":  # its dtype has no byte order
        return np.dtype(f">u{dtype.itemsize}")
    return dtype.newbyteorder("<" if endian == "little" else ">")


def _check_fill_type(fill: Any, dtype: np.dtype[Any]) -> None:
    """Raise `ValueError` for what version 3 does not allow; a reader would have to guess it."""
    accepted: tuple[type, ...] = (int, float, str)
    if dtype.kind == "c":
        accepted = (list,)
    elif dtype.kind in "OSUV" and not is_small_float(dtype):
        accepted = (str, dict) if dtype.names else (str,)
    if not isinstance(fill, accepted):
        raise ValueError(f"fill_value must be one of {dtype}; got {json.dumps(fill)}")


def _lengths(name: str, value: Any, at_least: int, ndim: int | None = None) -> tuple[int, ...]:
    whole = isinstance(value, list) and all(
        type(n) is int and at_least <= n < 1 << 63 for n in value
    )
    if not whole or (ndim is not None and len(value) != ndim):
        count = "" if ndim is None else f"{ndim} "
        raise ValueError(
            f"{name} must be {count}whole numbers of at least {at_least}; got {value!r}"
        )
    return tuple(value)


def _dtype_v2(value: Any) -> np.dtype[Any]:
    if isinstance(value, list):
        fields = [(name, _dtype_v2(kind), *map(tuple, shape)) for name, kind, *shape in value]
        return np.dtype(fields)
    if value in SMALL_FLOATS:  # as TensorStore writes it
        return named_dtype(value)
    dtype = np.dtype(str(value))
    if str(value)[0] not in "<>|" or (dtype.str[0] != "|" and str(value)[0] == "|"):
        raise ValueError(f"dtype must say its byte order; got {value!r}")
    if dtype.kind == "O":
        raise UnsupportedDtypeError(
            "elements must be numbers of a fixed size; got objects of variable length. "
            "Save what all rows hold and where each begins as two arrays, for oocdata.ragged."
        )
    return dtype


def unreadable(reason: str) -> UnknownFormatError:
    """Return the error for metadata that break a rule."""
    return UnknownFormatError(f"the Zarr metadata {reason}. Was the file damaged or cut short?")
