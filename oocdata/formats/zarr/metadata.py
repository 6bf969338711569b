"""Parse a Zarr array's metadata, without any library and without reading anything.

Zarr v2 keeps ``.zarray`` (Zarr storage specification version 2, "Metadata"), v3 keeps ``zarr.json``
(Zarr core specification version 3.0, "Array metadata"; sharding: ZEP 2, codec
``sharding_indexed``). Both are a few hundred bytes of JSON, so that describing an array takes
microseconds, where importing zarr-python or TensorStore takes a quarter of a second.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from oocdata.engines.source import Annotations, check_dtype
from oocdata.errors import UnknownFormatError, UnsupportedDtypeError
from oocdata.formats.zarr.attributes import fill_value_of, names_and_attributes
from oocdata.formats.zarr.codecs import CodecChain, ShardIndex, describe_v2, describe_v3, named

__all__ = ["ArrayMetadata", "load_json", "parse_array", "unreadable"]

_DTYPES_V3 = {
    **{name: name for name in ("bool", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64")},
    **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128")},
}
_FIELDS_V3 = {
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
    *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
}


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """An array as its metadata describes it.

    Attributes
    ----------
    version : int
        2 or 3.
    shape : tuple of int
    dtype : numpy.dtype
        Native byte order, as delivered.
    object_shape : tuple of int
        What one stored object holds: a chunk, or a shard of several chunks.
    chunk_shape : tuple of int
        What is decoded together: the innermost chunk.
    prefix, separator : str
        How the names of stored objects are made.
    fill_value : str
        As the metadata writes it.
    codec : str
        For people.
    raw_bytes : int or None
        Bytes of every stored object where nothing compresses.
    sharded : bool
    shard_index : ShardIndex or None
        None without shards, or where the index can't be found without decoding.
    zarr_only : str
        Why TensorStore can't read this array; empty where it can.
    stored_dtype : numpy.dtype
        With its byte order.
    plain_strides : tuple of int or None
        Bytes from one place to the next along each axis, in a stored object that is nothing but
        elements; None where it is something else.
    dimensions : tuple of str
        Names of the axes, empty for an axis without; empty where none has a name.
    annotations : Annotations
    """

    version: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    object_shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    prefix: str
    separator: str
    fill_value: str
    codec: str
    raw_bytes: int | None
    sharded: bool
    shard_index: ShardIndex | None
    zarr_only: str
    stored_dtype: np.dtype[Any]
    plain_strides: tuple[int, ...] | None
    dimensions: tuple[str, ...]
    annotations: Annotations = field(compare=False, repr=False)

    def annotate(self) -> Annotations:
        """Return attributes and fill value."""
        return self.annotations

    @property
    def grid(self) -> tuple[int, ...]:
        """Stored objects along each axis.

        Examples
        --------
        >>> text = b'''{"zarr_format": 2, "shape": [10], "chunks": [4], "dtype": "<f4",
        ...            "order": "C", "compressor": null, "filters": null, "fill_value": 0}'''
        >>> parse_array(text, 2, "a.zarr", None).grid
        (3,)
        """
        return tuple(
            -(-length // step) for length, step in zip(self.shape, self.object_shape, strict=True)
        )

    @property
    def chunks_per_object(self) -> tuple[int, ...]:
        """Chunks of a stored object along each axis: ones without shards."""
        return tuple(
            whole // step for whole, step in zip(self.object_shape, self.chunk_shape, strict=True)
        )

    def name(self, place: Sequence[int]) -> str:
        """Return the name of the stored object at a place of the grid."""
        parts = [str(number) for number in place]
        if self.prefix:
            parts.insert(0, self.prefix)
        return self.separator.join(parts) or "0"

    @property
    def layout(self) -> str:
        """How the array is divided, in a few words."""
        if self.sharded:
            return f"shards of {self.object_shape} holding chunks of {self.chunk_shape}"
        return f"chunks of {self.chunk_shape}"


def load_json(text: bytes, path: str, key: str | None) -> dict[str, Any]:
    """Return the JSON object that a metadata file holds.

    Raises
    ------
    oocdata.errors.UnknownFormatError
    """
    try:
        node = json.loads(text)
    except ValueError as error:  # JSON and UTF-8 errors are both ValueError
        raise unreadable(f"must be JSON; {error}", path, key) from error
    if not isinstance(node, dict):
        raise unreadable(f"must be a JSON object; got {type(node).__name__}", path, key)
    return node


def parse_array(
    text: bytes, version: int, path: str, key: str | None, attributes: bytes | None = None
) -> ArrayMetadata:
    """Return what a ``.zarray`` (version 2) or ``zarr.json`` (version 3) says about an array.

    Parameters
    ----------
    text : bytes
    version : int
    path, key : str or None
        For messages.
    attributes : bytes, optional
        What a ``.zattrs`` holds, which stands beside ``.zarray``.

    Raises
    ------
    oocdata.errors.UnknownFormatError
        If it is not the JSON that the specification asks for, or has a grid that is not regular.
    oocdata.errors.UnsupportedDtypeError
        For strings, dates, structured rows and objects.

    Examples
    --------
    >>> text = b'''{"zarr_format": 2, "shape": [10, 3], "chunks": [4, 3], "dtype": ">f4",
    ...            "order": "C", "compressor": {"id": "zstd", "level": 3}, "filters": null,
    ...            "fill_value": null}'''
    >>> metadata = parse_array(text, 2, "a.zarr", None)
    >>> metadata.dtype, metadata.codec, metadata.name((2, 0))
    (dtype('float32'), 'zstd 3', '2.0')
    """
    node = load_json(text, path, key)
    try:
        if node["zarr_format"] != version:
            raise ValueError(f"zarr_format must be {version}; got {node['zarr_format']!r}")
        if version == 3:
            return _version_3(node, path, key)
        return _version_2(node, path, key, attributes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UnknownFormatError | UnsupportedDtypeError):
            raise
        reason = f"lacks {error}" if isinstance(error, KeyError) else f"is wrong: {error}"
        raise unreadable(reason, path, key) from error


def _version_2(
    node: dict[str, Any], path: str, key: str | None, attributes: bytes | None
) -> ArrayMetadata:
    shape = _lengths("shape", node["shape"], 0, None)
    chunks = _lengths("chunks", node["chunks"], 1, len(shape))
    stored = _dtype_v2(node["dtype"], path, key)
    separator = node.get("dimension_separator", ".")
    if separator not in (".", "/") or node["order"] not in ("C", "F"):
        raise ValueError(
            f"dimension_separator must be '.' or '/' and order 'C' or 'F'; got {separator!r} "
            f"and {node['order']!r}"
        )
    chain = describe_v2(node["compressor"], node["filters"])
    if chain.extra_bytes == 0:
        axes = tuple(range(len(shape)))
        chain = replace(chain, plain_axes=axes if node["order"] == "C" else axes[::-1])
    beside: dict[str, Any] = {}
    if attributes is not None:
        with suppress(UnknownFormatError):
            beside = load_json(attributes, path, key)
    return _metadata(2, node, beside, shape, stored, chunks, ("", separator), chain)


def _version_3(node: dict[str, Any], path: str, key: str | None) -> ArrayMetadata:
    if node.get("node_type") != "array":
        raise ValueError(f"node_type must be 'array'; got {node.get('node_type')!r}")
    for name, value in node.items():
        if name not in _FIELDS_V3 and not (
            isinstance(value, dict) and value.get("must_understand") is False
        ):
            raise ValueError(f"the field {name!r} is not one of version 3 and must be understood")
    shape = _lengths("shape", node["shape"], 0, None)
    data_type = node["data_type"]
    if isinstance(data_type, dict):
        data_type = data_type.get("name")
    if data_type not in _DTYPES_V3:
        raise UnsupportedDtypeError(
            f"elements must be bool, integer, float or complex numbers; got the Zarr data type "
            f"{data_type!r}. Save the array again with a numeric dtype.",
            path=path,
            key=key,
        )
    stored = np.dtype(_DTYPES_V3[data_type])
    grid, grid_options = named(node["chunk_grid"])
    if grid != "regular":
        raise UnknownFormatError(
            f"the chunk grid must be regular; got {grid!r}. Write the array again with chunks of "
            "one shape.",
            path=path,
            key=key,
        )
    chunks = _lengths("chunk_shape", grid_options["chunk_shape"], 1, len(shape))
    encoding, options = named(node["chunk_key_encoding"])
    if encoding not in ("default", "v2"):
        raise ValueError(f"chunk_key_encoding must be 'default' or 'v2'; got {encoding!r}")
    default = encoding == "default"
    separator = options.get("separator", "/" if default else ".")
    if separator not in (".", "/"):
        raise ValueError(f"separator must be '.' or '/'; got {separator!r}")
    if node.get("storage_transformers"):
        raise ValueError("storage_transformers must be empty")
    chain = describe_v3(node["codecs"], chunks)
    if chain.byte_order != "|":
        stored = stored.newbyteorder(chain.byte_order)
    elif stored.itemsize > 1:  # a default would be a guess
        chain = replace(chain, plain_axes=None)
    names = ("c" if default else "", separator)
    return _metadata(3, node, node, shape, stored, chunks, names, chain)


def _metadata(
    version: int,
    node: dict[str, Any],
    annotated: dict[str, Any],
    shape: tuple[int, ...],
    stored: np.dtype[Any],
    objects: tuple[int, ...],
    naming: tuple[str, str],
    chain: CodecChain,
) -> ArrayMetadata:
    raw = strides = None
    if chain.extra_bytes is not None:
        raw = prod(objects) * stored.itemsize + chain.extra_bytes
    if chain.plain_axes is not None:
        lengths = [objects[axis] for axis in chain.plain_axes]
        steps = [stored.itemsize * prod(lengths[n + 1 :]) for n in range(len(lengths))]
        strides = tuple(steps[chain.plain_axes.index(axis)] for axis in range(len(steps)))
    fill_value = fill_value_of(node["fill_value"], stored)
    names, attributes = names_and_attributes(version, annotated, fill_value, len(shape), stored)
    return ArrayMetadata(
        version=version,
        shape=shape,
        dtype=stored.newbyteorder("="),
        object_shape=objects,
        chunk_shape=chain.chunk_shape or objects,
        prefix=naming[0],
        separator=naming[1],
        fill_value=json.dumps(node["fill_value"]),
        codec=chain.text,
        raw_bytes=raw,
        sharded=chain.chunk_shape is not None,
        shard_index=chain.shard_index,
        zarr_only=chain.zarr_only,
        stored_dtype=stored,
        plain_strides=strides,
        dimensions=names,
        annotations=Annotations(attributes, fill_value),
    )


def _lengths(name: str, value: object, at_least: int, ndim: int | None) -> tuple[int, ...]:
    whole = isinstance(value, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= at_least for n in value
    )
    if not whole or (ndim is not None and len(value) != ndim):  # type: ignore[arg-type]
        count = "" if ndim is None else f"{ndim} "
        raise ValueError(
            f"{name} must be {count}whole numbers of at least {at_least}; got {value!r}"
        )
    return tuple(value)  # type: ignore[arg-type]


def _dtype_v2(value: object, path: str, key: str | None) -> np.dtype[Any]:
    if isinstance(value, list):
        fields = [field[0] for field in value]
        raise UnsupportedDtypeError(
            f"elements must be numbers; got structured rows with the fields {fields}. Save the "
            "field you need as an array of its own.",
            path=path,
            key=key,
        )
    dtype = np.dtype(str(value))
    if str(value)[0] not in "<>|" or (dtype.str[0] != "|" and str(value)[0] == "|"):
        raise ValueError(f"dtype must say its byte order; got {value!r}")
    if dtype.kind == "O":
        raise UnsupportedDtypeError(
            "elements must be numbers of a fixed size; got objects of variable length. "
            "Save the array again with a numeric dtype.",
            path=path,
            key=key,
        )
    return check_dtype(dtype, path, key)


def unreadable(reason: str, path: str, key: str | None) -> UnknownFormatError:
    """Return the error for metadata that break a rule."""
    return UnknownFormatError(
        f"the Zarr metadata {reason}. Was the file damaged or cut short?", path=path, key=key
    )
