"""From whatever people have to a source: which format it is, and who opens it."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from oocdata.engines.axes import axis_numbers
from oocdata.engines.concat import concatenate
from oocdata.engines.objects import RowReader
from oocdata.engines.source import RowSource, Source, check_dtype
from oocdata.errors import ArgumentError, MissingFileError, SourceError, UnknownFormatError
from oocdata.formats import memory, npy
from oocdata.formats.foreign import foreign_file, foreign_members, foreign_url
from oocdata.formats.verified import manifest_of, verified

__all__ = ["Axis", "Format", "Missing", "format_of", "list_datasets", "open_source"]

Format: TypeAlias = Literal["npy", "npz", "hdf5", "zarr"]
Missing: TypeAlias = Literal["error", "fill"]
Axis: TypeAlias = int | str | Sequence[int | str]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NUMPY_MAGIC = b"\x93NUMPY"
_RULE = "the file must be .npy, .npz, HDF5 (netCDF4) or Zarr"


def open_source(
    target: Any,
    key: str | None = None,
    *,
    axis: Axis = 0,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    missing: Missing | None = None,
    external: bool = False,
    verify: bool | str | os.PathLike[str] | None = None,
) -> Source:
    """Return the source of `target`; the arguments are those of `oocdata.open`.

    `axis` only says along which axis files are put end to end and which places errors call rows:
    its first axis. A source has no sample axes.
    """
    if missing not in (None, "error", "fill"):
        raise ArgumentError(f"`missing` must be 'error' or 'fill'; got {missing!r}.")
    if not (key is None or isinstance(key, str)):
        raise ArgumentError(f"`key` must be a dataset's name; got {key!r}.")
    several = isinstance(axis, Sequence) and not isinstance(axis, str)
    outermost: Any = (axis[0] if axis else 0) if several else axis  # type: ignore[index]
    options: dict[str, Any] = {
        "axis": outermost, "dtype": dtype, "shape": shape, "offset": offset, "missing": missing,
        "external": external,
    }  # fmt: skip
    if isinstance(target, list | tuple):
        return _open_parts(list(target), key, options, verify)
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
            (row_axis,) = axis_numbers(outermost, len(source.shape), source.storage())
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
    source = _open_object(target, key, outermost, missing, external)
    return source if manifest is None else verified(source, manifest)


def _open_parts(parts: list[Any], key: str | None, options: dict[str, Any], verify: Any) -> Source:
    """Open files or objects and put them end to end."""
    if not parts:
        raise ArgumentError("`target` must name at least one file; got an empty list.")
    if len(parts) > 1 and isinstance(verify, str | os.PathLike):
        raise ArgumentError(
            "`verify` must be True for several files, each with its manifest beside it; got "
            f"{os.fspath(verify)!r}."
        )
    opened = [open_source(part, key, **options, verify=verify) for part in parts]
    first = opened[0]
    (along,) = axis_numbers(options["axis"], len(first.shape), first.storage())
    return concatenate(opened, along)


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
        from oocdata.formats import hdf5

        return hdf5.open_hdf5(path, key, axis=axis, missing=missing, external=external)
    from oocdata.formats import zarr

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
    _refuse(foreign_file(path, head), path)
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


def _refuse(found: str, path: str) -> None:
    """Raise if something is known that is not opened as it is."""
    if found:
        rule = "a URL must be that of a Zarr array or group" if "://" in path else _RULE
        raise UnknownFormatError(f"{rule}; got {found}", path=path)


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
        from oocdata.formats import hdf5

        return list(hdf5.list_hdf5(path))
    from oocdata.formats import zarr

    return list(zarr.list_zarr(path))


def _open_object(
    target: Any, key: str | None, axis: int | str, missing: Missing | None, external: bool
) -> Source:
    # By name: whoever holds such an object has imported its library, nobody else should have to.
    library = type(target).__module__.partition(".")[0]
    if library == "xarray":
        from oocdata.formats import xarray

        array = xarray.array_of(target, key)
        return xarray.open_data_array(array, axis=axis, missing=missing, external=external)
    if key is not None:
        raise ArgumentError(
            f"`key` must be None for an object; got {key!r}. Pass the dataset itself: "
            f"file[{key!r}]."
        )
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
    if isinstance(target, Source | RowSource):
        if not check_dtype(target.dtype).isnative:
            raise ArgumentError(
                f"a source must deliver native byte order; {type(target).__name__} has "
                f"{target.dtype.str}."
            )
        return target if isinstance(target, Source) else RowReader(target)
    if library == "h5py" and type(target).__name__ == "Dataset":
        from oocdata.formats import hdf5

        return hdf5.from_dataset(target, axis=axis, missing=missing, external=external)
    if library == "zarr" and type(target).__name__ == "Array":
        from oocdata.formats import zarr

        return zarr.from_array(target, axis=axis, missing=missing)
    return memory.open_object(target, axis=axis)
