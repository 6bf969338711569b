"""Open arrays in memory, and objects with shape, dtype and slicing."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.axes import axis_numbers
from oocdata.engines.chunked import Chunked
from oocdata.engines.dtypes import check_dtype, check_stored, described_dtype, unit_of
from oocdata.engines.files import FileVersion, OpenFile
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.objects import Sliced, regular_chunks
from oocdata.engines.source import Source, Storage
from oocdata.engines.strided import Strided
from oocdata.engines.wrapped import SourceChunks
from oocdata.errors import ArgumentError, UnknownFormatError, UnsupportedDtypeError
from oocdata.index import as_count, is_masked

_HINT = (
    "Pass an array, such as np.asarray(x), or np.asarray(x, str) for text; one array of a group, "
    "one column of a table; the path of an open file; several paths as a list. Write batches to "
    "a file once: ooc.create and writer.append(batch); ooc.generate reads what a function yields."
)


def open_array(array: NDArray[Any], *, axis: int | str = 0) -> Source:
    """Open an ndarray; a ``numpy.memmap`` is read from its file."""
    if is_masked(array):
        raise UnsupportedDtypeError(
            "an array must not be masked, because batches have no mask; got a masked array. "
            "Replace the masked values: array.filled(0)."
        )
    stored = check_stored(array.dtype)
    source = _of_file(array, stored, axis) if isinstance(array, np.memmap) else None
    if source is None:
        source = MemoryArray(np.asarray(array))
        if unit := unit_of(array.dtype):
            described = replace(source.storage(), unit=unit)
            source = MemoryArray(np.asarray(array).view(stored), described)
        if array.ndim:
            axis_numbers(axis, array.ndim, source.storage())
    return source


def _of_file(array: np.memmap[Any, Any], stored: np.dtype[Any], axis: int | str) -> Source | None:
    """Return a source of the file of a memory map; None if their numbers may differ."""
    root: Any = array
    while isinstance(root.base, np.memmap):
        root = root.base
    # A copy-on-write map ("c") may have changes that are not in the file.
    if root.filename is None or root.mode not in ("r", "r+", "w+") or root.base is None:
        return None
    if min(array.strides, default=0) < 0:  # reversed: read through the map
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if not -root.offset <= start <= root.nbytes or not array.size:
        return None
    try:
        with open(root.filename, "rb") as opened_file:
            if not _is_mapped(opened_file.fileno(), root.__array_interface__["data"][0]):
                return None
            version = FileVersion.of(str(root.filename), os.fstat(opened_file.fileno()))
    except OSError:  # deleted, but still mapped
        return None
    offset = root.offset + start
    reopen = {
        "target": version.path,
        "dtype": described_dtype(array.dtype),
        "shape": list(array.shape),
        "offset": offset,
    }
    storage = Storage(
        format="numpy.memmap",
        path=version.path,
        layout="contiguous" if array.flags.c_contiguous else "strided",
        codec="none",
        stored_bytes=array.nbytes,
        reading="each box by its byte offsets in the file, not through the map",
        strides=array.strides,
        unit=unit_of(array.dtype),
        files=(version,),
        opened=reopen if array.flags.c_contiguous else None,
    )
    (rows,) = axis_numbers(axis, array.ndim, storage) if array.ndim else (0,)
    file = OpenFile(version if root.mode == "r" else version.writable())
    return Strided(file, stored, array.shape, array.strides, offset, storage, axis=rows)


def _is_mapped(file: int, address: int) -> bool:
    """Return whether the memory at an address is a map of an open file; False without ``/proc``.

    Another file may have been moved to the path since. The kernel's list has device and inode of
    each map, on some file systems not those of `os.fstat`: so the open file is mapped too, and the
    two entries are compared.
    """
    with mmap.mmap(file, 1, access=mmap.ACCESS_READ) as own_map:
        own_address = np.frombuffer(own_map, np.uint8).__array_interface__["data"][0]
        try:
            with open("/proc/self/maps") as maps:
                lines = maps.readlines()  # thousands, sorted by address
        except OSError:
            return False
    numbers = [
        bisect_right(lines, start, key=lambda line: int(line.partition("-")[0], 16))
        for start in (own_address, address)
    ]
    own_file, mapped_file = (lines[number - 1].split(None, 5)[3:5] for number in numbers)
    return own_file == mapped_file


def open_object(target: Any, *, axis: int | str = 0) -> Source:
    """Open any object with shape, dtype and slicing."""
    if hasattr(target, "toarray") or hasattr(target, "to_memory"):  # of SciPy, of AnnData
        raise UnknownFormatError(
            f"`target` must be a dense array; got a sparse one, {type(target).__name__}. Open it "
            "by its path, as ooc.open('cells.h5ad', 'X'), or convert it: target.toarray()."
        )
    if not all(hasattr(target, name) for name in ("shape", "dtype", "__getitem__")):
        raise UnknownFormatError(
            "`target` must be a path, an array, or an object with shape, dtype and slicing; got "
            f"{type(target).__name__}. {_HINT}"
        )
    check_shape(target)
    try:
        dtype = np.dtype(target.dtype)
    except TypeError as error:
        raise UnsupportedDtypeError(
            f"`target` must have a NumPy dtype; got {target.dtype!r}. {_HINT}"
        ) from error
    check_dtype(dtype)
    chunks = regular_chunks(target)
    storage = Storage(
        format=type(target).__name__,
        layout=f"chunks of {chunks}" if chunks else "unknown",
        reading="by slices of the object, one for each "
        + ("chunk" if chunks else "run of neighbouring boxes"),
        chunks=chunks if chunks and max(chunks) > 1 else None,
    )
    (rows,) = axis_numbers(axis, len(target.shape), storage) if target.shape else (0,)
    return slices_of(target, storage, rows)


def check_shape(target: Any) -> None:
    """Raise `ArgumentError` for an object whose shape is not of whole numbers."""
    try:
        _ = [as_count("shape", length, at_least=0) for length in target.shape]
    except (ArgumentError, TypeError) as error:
        raise ArgumentError(
            f"`shape` of {type(target).__name__} must be whole numbers of at least 0, such as "
            f"(100, 3); got {target.shape!r}. Let dask count them: array.compute_chunk_sizes()."
        ) from error


def slices_of(target: Any, storage: Storage, axis: int) -> Source:
    """Return a source that slices an object, chunk by chunk if `storage` has chunks."""
    source = Sliced(target, storage, axis=axis)
    if storage.chunks is None:
        return source
    return Chunked(SourceChunks(source, storage, storage.chunks, own_threads=True))
