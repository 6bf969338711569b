"""Open a path, a URL, a list of files or an object as a `Source`.

The format is detected here, and its module opens it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.engines.axes import axis_numbers
from oocdata.engines.dtypes import check_dtype
from oocdata.engines.fields import field_of
from oocdata.engines.mixed_shapes import join_parts
from oocdata.engines.objects import RowReader
from oocdata.engines.ragged_rows import is_ragged
from oocdata.engines.source import RowSource, Source
from oocdata.errors import (
    ArgumentError,
    MismatchedPartsError,
    MissingFileError,
    SourceError,
    UnknownFormatError,
    error_location,
)
from oocdata.formats import memory, npy
from oocdata.formats.options import Options
from oocdata.formats.paths import absolute, is_url, open_stream
from oocdata.formats.patterns import Axis, Key, Missing, is_pattern, natural_key
from oocdata.formats.recognising import (
    Format,
    format_of,
    hint_for_glob,
    is_folder,
    picture_format,
)
from oocdata.index import as_path

if TYPE_CHECKING:
    from oocdata.formats.tree import Tree

__all__ = [
    "Axis", "Format", "Missing", "files_matching", "format_of", "list_datasets", "local_path",
    "open_source", "tree_of",
]  # fmt: skip

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "raw binary": ("dtype", "shape", "offset"), "npy": ("dtype",), "npz": (), "picture": (),
    "text": ("format",), "tfrecord": ("format",), "hdf5": ("missing", "external"),
    "zarr": ("missing",),
}  # fmt: skip
"""Options that each format accepts."""

_NAMED = ("npz", "hdf5", "zarr")
"""Formats of several arrays, which have names."""


def open_source(
    target: Any,
    key: Key | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    store: Any = None,
    **arguments: Any,
) -> Source:
    """Open `target` as a source; the arguments are those of `oocdata.open`."""
    if store is not None:
        from oocdata.stores.user_stores import user_store_url  # not for `import oocdata`

        several = isinstance(target, list | tuple)
        urls = [user_store_url(store, name) for name in (target if several else [target])]
        target = urls if several else urls[0]
    options = Options(key, **arguments)
    folder = None if cache is None else as_path("cache", cache)
    targets = target if isinstance(target, list | tuple) else [target]
    if any(isinstance(part, str) and is_url(part) for part in targets):
        from oocdata.stores.versions import shared_lookups  # not for `import oocdata`

        with shared_lookups(folder):  # share what is looked up meanwhile
            return _open_any(target, options)
    if folder is not None:
        raise ArgumentError(
            f"`cache` must be given for URLs only; got {folder!r} for what is on this machine. "
            "To keep mapped rows: `.cache(folder)`."
        )
    return _open_any(target, options)


def _open_any(target: Any, options: Options) -> Source:
    if isinstance(target, str | bytes | os.PathLike):
        target = local_path(os.fsdecode(target))
        target = files_matching(target) or target
    if isinstance(target, list | tuple):
        files = _picture_files(target)
        if files:
            return _rows(_open_pictures(files, options), options)
        return _open_parts(target, options)
    path: str | None = target if isinstance(target, str) else None
    if options.verify is not None and options.verify is not False:
        from oocdata.formats.verified import manifest_of  # not for `import oocdata`

        options = replace(options, manifest=manifest_of(options.verify, path))
    if path is None:
        return _rows(_open_object(target, options), options)
    try:
        with error_location(path):
            return _open_path(path, options)
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"the file must be readable; {error}.", path=path) from error


def files_matching(path: str) -> list[str] | None:
    """Return the files that a glob matches, in natural order; None if the path is no glob."""
    if is_url(path):
        name = path.partition("://")[2].partition("/")[2]  # the host may be [::1]
        if "*" not in name and "[" not in name:
            return None
        if "**" in path:
            raise ArgumentError(
                "`target` must not have ** at a URL, where patterns match within a step of the "
                f"name; got {path!r}. Give a list with a pattern for each depth."
            )
        from oocdata.stores.address import matching  # not for `import oocdata`

        names = matching(path)
    elif not glob.has_magic(path) or os.path.exists(path):
        return None
    else:
        names = glob.glob(path, recursive=True)
    if not names:
        hint = "" if is_url(path) else hint_for_glob(path)
        raise MissingFileError(f"a glob must match at least one file; got none.{hint}", path=path)
    return sorted(names, key=lambda name: (natural_key(name), name))


def local_path(path: str) -> str:
    """Return a path with ``~`` expanded and ``file://`` removed; other URLs are unchanged.

    Raises `ArgumentError` for a URL with a credential or a malformed one, and for a file on another
    machine.
    """
    if path.startswith("file://"):
        from urllib.parse import unquote

        host, _, name = path.removeprefix("file://").partition("/")
        host = host.rpartition("@")[2]  # a message must not show a password
        if host not in ("", "localhost"):
            raise ArgumentError(
                "a file:// URL must name a file on this machine, from the root on: "
                f"file:///data/a.npy; got one of the machine {host!r}. Give a path."
            )
        return unquote(f"/{name}")
    if is_url(path):
        from oocdata.stores.address import Address  # not for `import oocdata`

        Address.of(path)  # raises for a credential before any message can show it
        return path
    return as_path("target", path)


def _picture_files(parts: Sequence[Any]) -> list[str]:
    """Return the files that paths and globs name if the first is a picture, else an empty list."""
    if not all(isinstance(part, str | os.PathLike) for part in parts):
        return []
    paths = (local_path(os.fspath(part)) for part in parts)
    files = [file for path in paths for file in (files_matching(path) or [path])]
    if not files or not os.path.isfile(files[0]):
        return []
    with open_stream(files[0]) as (first, _):
        return files if picture_format(first.read(16)) else []


def _open_pictures(files: list[str], options: Options) -> Source:
    options.refuse_key("pictures")
    accepted = options.only(f"'{files[0]}', a picture file")
    if options.verify and len(files) > 1:
        raise ArgumentError(f"`verify` must be left out for pictures; got {options.verify!r}.")
    from oocdata.formats.pictures import open_pictures  # not for `import oocdata`

    return open_pictures(files, options.pictures, **accepted)


def _open_parts(parts: Sequence[Any], options: Options) -> Source:
    if not parts:
        raise ArgumentError("`target` must name at least one file; got an empty list.")
    if len(parts) > 1 and isinstance(options.verify, str | os.PathLike):
        raise ArgumentError(
            "`verify` must be True for several files, each with its manifest beside it; got "
            f"{os.fspath(options.verify)!r}."
        )
    for part in parts:
        if isinstance(part, str) and is_url(part) and _is_file(part):
            from oocdata.stores.files import StoredFile  # not for `import oocdata`

            StoredFile.request_at(part)  # all at once
    opened = [_open_any(part, options) for part in parts]
    (along,) = axis_numbers(options.axis, len(opened[0].shape), opened[0].storage())
    return join_parts(opened, along, options.pad)


def _rows(source: Source, options: Options, path: str | None = None) -> Source:
    """Apply the options `pad`, `verify`, `field`, `decode` and `pictures` to a source.

    `path` is that of the source's file.
    """
    if options.pad is not None and is_ragged(source):
        storage = source.storage()
        changes = {"path": storage.path, "key": storage.key, "opened": storage.opened}
        source = join_parts([source], 0, options.pad, changes)
    if options.manifest is not None:
        from oocdata.formats.verified import verified  # not for `import oocdata`

        (axis,) = axis_numbers(options.axis, len(source.shape), source.storage())
        source = verified(source, options.manifest, path=path, axis=axis)
    for name in options.fields:
        source = field_of(source, name)
    if options.decode:
        from oocdata.formats.packing import decoded  # not for `import oocdata`

        source = decoded(source)
    if source.storage().row_files:  # picture files are decoded, each a row
        return source
    if options.pictures is not None:
        from oocdata.formats.pictures import open_picture_rows  # not for `import oocdata`

        source = open_picture_rows(source, options.pictures, axis=options.axis)
    if options.axis is None:
        from oocdata.engines.single_rows import single_row  # not for `import oocdata`

        return single_row(source)
    return source


def _open_path(path: str, options: Options) -> Source:
    kind: str
    if options.dtype is not None and options.shape is not None:
        kind = "raw binary"
        if not is_url(path) and is_folder(path):
            raise MissingFileError("No such file; it is a folder.")
    elif options.format == "text" and os.path.isfile(path):
        kind = "text"
    else:
        if is_url(path) and isinstance(options.key, str) and not _is_file(path):
            _ask_for_metadata(path, options.key.strip("/"))
        kind = format_of(path)
    accepted = options.only(f"'{path}', which is {kind}", *_ACCEPTED[kind])
    if kind in _NAMED:
        return _open_named(path, kind, accepted, options)
    options.refuse_key(".npy" if kind == "npy" else kind)
    # `import oocdata` imports NumPy's formats only.
    source: Source
    if kind == "raw binary":
        source = npy.open_raw(path, **accepted)
    elif kind == "npy":
        source = npy.open_npy(path, **accepted)
    elif kind == "picture":
        source = _open_pictures([path], options)
    elif kind == "text":
        from oocdata.formats.lines import open_lines

        source = open_lines(path, format=accepted["format"])
    else:
        from oocdata.formats.tfrecord import open_tfrecord

        source = open_tfrecord(path)
    return _rows(source, options, path)


def _open_named(path: str, kind: str, accepted: dict[str, Any], options: Options) -> Source:
    """Open what a key means in a file with named arrays.

    Several arrays are opened together; one by one if each must be verified or decoded, or is a
    row, or if only then their rows have one dtype and shape.
    """
    key, axis = options.key, accepted.pop("axis")
    with tree_of(path, kind, **accepted) as tree:
        if key is None or (isinstance(key, str) and tree.is_name(key)):
            parts, together = [tree.open(key, axis)], True
        else:
            parts, together = [], False
            if axis is not None and options.manifest is None is options.pictures:
                with suppress(MismatchedPartsError):
                    parts, together = [tree.join(key, axis)], True
            if not together:
                parts = [tree.open(name, axis) for name, _ in tree.matches(key)]
    parts = [_rows(part, options, path) for part in parts]
    if together or key is None:
        return parts[0]
    return tree.concatenate(parts, key, axis, options.pad)


def _is_file(url: str) -> bool:
    """Return whether a URL has the ending of a file format, so it is no Zarr hierarchy."""
    return url.lower().endswith((".npy", ".npz", ".h5", ".hdf5", ".he5", ".nc", ".nc4", ".h5ad"))


def _ask_for_metadata(url: str, key: str) -> None:
    """Prefetch the metadata of a Zarr array before it is known whether the URL is a hierarchy.

    So both arrive in one round trip.
    """
    # Not for `import oocdata`.
    from oocdata.formats.zarr.hierarchy import metadata_names
    from oocdata.stores.address import Address
    from oocdata.stores.versions import request_small

    if not is_pattern(key) and not {"", ".", ".."} & set(key.split("/")):
        hierarchy = Address.of(url.rstrip("/"))
        request_small([hierarchy / name for name in metadata_names(key.strip("/"))])


def tree_of(path: str, kind: str | None = None, **options: Any) -> Tree:
    """Return the tree of arrays of an HDF5 file, a Zarr hierarchy or an ``.npz``.

    `kind` is its format, if that is known; `options` are those of `oocdata.open` that the format
    accepts. Raises `ArgumentError` for a file of another format, which is one array.
    """
    kind = kind or format_of(path)
    if kind == "npz":
        from oocdata.formats.npz import NpzTree

        return NpzTree(absolute(path))
    if kind == "hdf5":
        from oocdata.formats.hdf5.opening import Hdf5Tree

        return Hdf5Tree(path, **options)
    if kind == "zarr":
        from oocdata.formats.zarr import ZarrTree

        return ZarrTree(path, **options)
    raise ArgumentError(f"`key` must be None for {kind}, without names. [file '{path}']")


def list_datasets(path: str) -> list[str | None]:
    """Return the keys of the arrays in a file; ``[None]`` for a format with a single array."""
    path = local_path(path)
    kind = format_of(path)
    if kind not in _NAMED:
        return [None]
    with tree_of(path, kind) as tree:
        return list(tree.names())


def _open_object(target: Any, options: Options) -> Source:
    key = options.key
    # Types are compared by name, so that no library is imported for a test.
    library, kind = type(target).__module__.partition(".")[0], type(target).__name__
    what = f"an object, {kind}"
    if key is not None and not isinstance(key, str):
        raise ArgumentError(f"`key` must be one name for an object; got {key!r}.")
    if library == "xarray":
        from oocdata.formats import xarray

        array = xarray.array_of(target, key)
        return xarray.open_data_array(array, **options.only(what, "missing", "external"))
    if key is not None:
        raise ArgumentError(
            f"`key` must be None for an object; got {key!r}. Pass the dataset itself: "
            f"file[{key!r}]."
        )
    if library == "h5py" and kind == "Dataset":
        from oocdata.formats.hdf5 import opening as hdf5

        return hdf5.from_dataset(target, **options.only(what, "missing", "external"))
    if library == "zarr" and kind == "Array":
        from oocdata.formats.zarr import from_array

        return from_array(target, **options.only(what, "missing"))
    if library == "netCDF4":
        # The netCDF4 library is not thread-safe.
        path = target.filepath() if hasattr(target, "filepath") else target.group().filepath()
        raise UnknownFormatError(
            "`target` must not be an object of netCDF4, which only one thread may use. Open the "
            f"file by its path: ooc.open({path!r}, key)."
        )
    accepted = options.only(what)
    if isinstance(target, np.ndarray):
        return memory.open_array(target, **accepted)
    if isinstance(target, Source | RowSource):
        return _checked_source(target, kind)
    return memory.open_object(target, **accepted)


def _checked_source(target: Source | RowSource, kind: str) -> Source:
    memory.check_shape(target)
    source = target if isinstance(target, Source) else RowReader(target)
    if not isinstance(source.dtype, np.dtype) or not check_dtype(source.dtype).isnative:
        raise ArgumentError(
            f"`dtype` of {kind} must be a np.dtype in native byte order; got {source.dtype!r}."
        )
    return source
