"""From whatever people have to a source: which format it is, and who opens it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from oocdata.errors import ArgumentError, MissingFileError, SourceError, UnknownFormatError
from oocdata.sources import memory, npy, xarray
from oocdata.sources.adapt import layout_of
from oocdata.sources.concat import concatenate
from oocdata.sources.foreign import (
    Foreign,
    foreign_beside,
    foreign_file,
    foreign_members,
    foreign_url,
)
from oocdata.sources.source import Source, check_axis, check_dtype
from oocdata.sources.verified import manifest_of, verified

__all__ = ["Format", "Missing", "format_of", "list_datasets", "open_source"]

Format: TypeAlias = Literal["npy", "npz", "hdf5", "zarr"]
Missing: TypeAlias = Literal["error", "fill"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NUMPY_MAGIC = b"\x93NUMPY"
_RULE = "the file must be .npy, .npz, HDF5 (netCDF4) or Zarr"


def open_source(
    target: Any,
    key: str | None = None,
    *,
    axis: int | str = 0,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    missing: Missing = "error",
    external: bool = False,
    verify: bool | str | os.PathLike[str] | None = None,
) -> Source:
    """Return the source of `target`; the arguments are those of `oocdata.open`."""
    if missing not in ("error", "fill"):
        raise ArgumentError(f"`missing` must be 'error' or 'fill'; got {missing!r}.")
    if not (key is None or isinstance(key, str)):
        raise ArgumentError(f"`key` must be a dataset's name; got {key!r}.")
    options: dict[str, Any] = {
        "axis": axis, "dtype": dtype, "shape": shape, "offset": offset, "missing": missing,
        "external": external,
    }  # fmt: skip
    if isinstance(target, list | tuple):
        if not target:
            raise ArgumentError("`target` must name at least one file; got an empty list.")
        if len(target) > 1 and isinstance(verify, str | os.PathLike):
            raise ArgumentError(
                "`verify` must be True for several files, each with its manifest beside it; got "
                f"{os.fspath(verify)!r}."
            )
        options["verify"] = verify
        return concatenate([open_source(part, key, **options) for part in target])
    if isinstance(target, str | os.PathLike):
        path = _local(os.fspath(target))
        if not os.path.exists(path) and "://" not in path and glob.has_magic(path):
            found = sorted(glob.glob(path), key=lambda name: (_natural(name), name))
            if not found:
                raise MissingFileError("a glob must match at least one file; got none.", path=path)
            return open_source(found, key, **options, verify=verify)
        manifest = manifest_of(verify, path)
        try:
            source = _open_path(path, key, options)
            if manifest is None:
                return source
            names = layout_of(source).dimensions
            row_axis = check_axis(axis, len(source.shape), path, names=names)
            return verified(source, manifest, path=path, axis=row_axis)
        except SourceError:
            raise
        except OSError as error:
            raise SourceError(f"the file must be readable; {error}.", path=path) from error
    if dtype is not None or shape is not None or offset:
        raise ArgumentError(
            "`dtype`, `shape` and `offset` must be given for raw binary files only; got "
            f"{type(target).__name__}. Use `.astype` to convert."
        )
    manifest = manifest_of(verify, None)
    source = _open_object(target, key, axis, missing, external)
    return source if manifest is None else verified(source, manifest)


def _local(path: str) -> str:
    """Return a path with the home folder written out, and without the ``file://`` of a URL."""
    if path.startswith("file://"):
        from urllib.parse import unquote

        return unquote("/" + path.removeprefix("file://").partition("/")[2])
    return os.path.expanduser(path)


def _natural(path: str) -> list[tuple[int, int | str]]:
    """Sort key by which part 2 comes before part 10: files of a time series stay in order."""
    runs = [run for run in re.split(r"(\d+)", path) if run]
    return [(0, int(run)) if run.isdecimal() else (1, run) for run in runs]


def _open_path(path: str, key: str | None, options: dict[str, Any]) -> Source:
    axis, missing, external = options["axis"], options["missing"], options["external"]
    dtype, shape, offset = options["dtype"], options["shape"], options["offset"]
    if dtype is not None and shape is not None:
        if key is not None:
            raise ArgumentError(
                f"`key` must be None for raw binary, which has no names; got {key!r}."
            )
        _refuse_stream(path)
        if not os.path.isfile(path):
            raise MissingFileError("a raw binary file must exist; it does not.", path=path)
        return npy.open_raw(path, dtype=dtype, shape=shape, offset=offset, axis=axis)
    kind = format_of(path)
    if dtype is not None or shape is not None or offset:
        raise ArgumentError(
            "`dtype`, `shape` and `offset` must be given for raw binary files only, dtype and "
            f"shape together; '{path}' is {kind}. Use `.astype` to convert."
        )
    if kind == "npy":
        if key is not None:
            raise ArgumentError(
                f"`key` must be None for a .npy, which holds one array; got {key!r}."
            )
        return npy.open_npy(path, axis=axis)
    if kind == "npz":
        return npy.open_npz(path, key, axis=axis)
    if kind == "hdf5":
        from oocdata.sources import hdf5

        return hdf5.open_hdf5(path, key, axis=axis, missing=missing, external=external)
    from oocdata.sources import zarr

    return zarr.open_zarr(path, key, axis=axis, missing=missing)


def format_of(path: str) -> Format:
    """Return the format of a file or directory, by what is in it; a URL is Zarr.

    Raises
    ------
    oocdata.errors.MissingFileError
        The message lists files of a similar name.
    oocdata.errors.UnknownFormatError
        The message lists what can be opened. A pipe or a device is not opened to see what it is.
    """
    if "://" in path:
        _refuse(foreign_url(path), path)
        return "zarr"
    if not os.path.exists(path) or path.endswith(".index"):
        _refuse(foreign_beside(path), path)
    if not os.path.exists(path):
        raise MissingFileError(f"the file must exist; it does not.{_neighbours(path)}", path=path)
    _refuse_stream(path)
    if os.path.isdir(path):
        if any(os.path.exists(os.path.join(path, name)) for name in _ZARR_METADATA):
            return "zarr"
        below = glob.glob("*/snapshot.metadata", root_dir=path)
        _refuse(foreign_members([*os.listdir(path), *below]), path)
        raise UnknownFormatError(
            "a directory must be a Zarr array or group (zarr.json, .zarray or .zgroup in it). "
            "Use a glob for a directory of files: 'folder/*.npy'.",
            path=path,
        )
    with open(path, "rb") as file:
        head = file.read(64)
        if head.startswith(_NUMPY_MAGIC):
            return "npy"
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            names = _archive_names(path)
            if any(os.path.basename(name) in _ZARR_METADATA for name in names):
                return "zarr"
            _refuse(foreign_members(names), path)
            return "npz"
        # HDF5 file format specification, section II.A: at 0, or after a user block of 512·2ⁿ.
        place, nbytes = 0, os.path.getsize(path)
        while place < nbytes:
            file.seek(place)
            if file.read(8) == _HDF5_SIGNATURE:
                return "hdf5"
            place = max(512, place * 2)
    _refuse(foreign_file(path, head, nbytes), path)
    raise UnknownFormatError(
        f"{_RULE}; its first bytes are {head[:8]!r}. For raw binary give `dtype` and `shape`.",
        path=path,
    )


_ZARR_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")


def _archive_names(path: str) -> list[str]:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except zipfile.BadZipFile:
        return []


def _refuse(found: Foreign | None, path: str) -> None:
    """Raise what is known of something that is not opened as it is."""
    if found is not None:
        rule = "a URL must be that of a Zarr array or group" if "://" in path else _RULE
        raise UnknownFormatError(f"{rule}; got {found.what}. {found.hint}", path=path)


def _refuse_stream(path: str) -> None:
    """Refuse a pipe, a socket or a device: opening it may wait for ever, and it has no places."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UnknownFormatError(
            "the file must be a regular file or a folder, which can be read at any place; got a "
            "pipe, a socket or a device. Write what comes through it to a file.",
            path=path,
        )


def _neighbours(path: str) -> str:
    import difflib

    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f" There is no folder '{folder}' either."
    near = difflib.get_close_matches(os.path.basename(path), os.listdir(folder), n=3)
    return f" Nearby: {', '.join(near)}." if near else ""


def list_datasets(path: str) -> list[str | None]:
    """Return the keys of the arrays in a file; ``[None]`` for a format that holds one."""
    path = _local(path)
    kind = format_of(path)
    if kind == "npy":
        return [None]
    if kind == "npz":
        return list(npy.list_npz(path))
    if kind == "hdf5":
        from oocdata.sources import hdf5

        return list(hdf5.list_hdf5(path))
    from oocdata.sources import zarr

    return list(zarr.list_zarr(path))


def _open_object(
    target: Any, key: str | None, axis: int | str, missing: Missing, external: bool
) -> Source:
    if xarray.is_xarray(target):
        array = xarray.array_of(target, key)
        return xarray.open_data_array(array, axis=axis, missing=missing, external=external)
    if key is not None:
        raise ArgumentError(
            f"`key` must be None for an object; got {key!r}. Pass the dataset itself: "
            f"file[{key!r}]."
        )
    # By name: whoever holds such an object has imported its library, nobody else should have to.
    library = type(target).__module__.partition(".")[0]
    if library == "netCDF4":
        # Its library is not safe in several threads.
        path = target.filepath() if hasattr(target, "filepath") else target.group().filepath()
        raise UnknownFormatError(
            f"`target` must not be an object of netCDF4, which only one thread may use; got its "
            f"{type(target).__name__} {getattr(target, 'name', '')!r}. Open the file by its path, "
            f"or through xarray: ooc.open({path!r}, key) or ooc.open(xarray.open_dataset(…)[key])."
        )
    if isinstance(target, np.ndarray):
        return memory.open_array(target, axis=axis)
    if isinstance(target, Source):
        if check_axis(axis, len(target.shape)) != 0:
            raise ArgumentError(
                f"`axis` must be 0 for a source, whose rows come first; got {axis}."
            )
        if not check_dtype(target.dtype).isnative:
            raise ArgumentError(
                f"a source must deliver native byte order; {type(target).__name__} has "
                f"{target.dtype.str}."
            )
        return target
    if library == "h5py" and type(target).__name__ == "Dataset":
        from oocdata.sources import hdf5

        return hdf5.from_dataset(target, axis=axis, missing=missing, external=external)
    if library == "zarr" and type(target).__name__ == "Array":
        from oocdata.sources import zarr

        return zarr.from_array(target, axis=axis, missing=missing)
    return memory.open_object(target, axis=axis)
