"""Arrays in memory, and any object with shape, dtype and slicing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError, UnknownFormatError, UnsupportedDtypeError
from oocdata.index import Cut, as_slice
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents, FileStamp
from oocdata.sources.source import Annotations, Layout, Source, check_axis, check_dtype
from oocdata.sources.strided import row_source

__all__ = ["IN_MEMORY", "Memory", "open_array", "open_object"]

IN_MEMORY = Layout(
    format="array in memory",
    path=None,
    key=None,
    storage="contiguous",
    codec="none",
    stored_bytes=None,
    reading="each row copied into the batch",
)
"""The layout of an array of which nothing more is known."""

_SCRATCH_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows of an array in memory.

    Attributes
    ----------
    array : ndarray, shape (rows, *element)
        Any strides and byte order. It is not copied: changing it changes what is read.
    described : Layout
    said : Annotations
        Of whatever held the array.
    """

    array: NDArray[Any]
    described: Layout = IN_MEMORY
    said: Annotations = field(default_factory=Annotations)

    converts = True
    chunk_rows = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, *element)``."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        return self.array.dtype.newbyteorder("=")

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return self.described

    def annotations(self) -> Annotations:
        """Return attributes of whatever held the array."""
        return self.said

    def cut(self, cuts: tuple[Cut, ...]) -> Source:
        """Return the source of ``row[cuts]``: a view of the array."""
        key = [cut if isinstance(cut, int) else as_slice(cut) for cut in cuts]
        array = self.array[(slice(None), *key)]
        return replace(self, array=array, described=self.described.cut(cuts))

    def read_into(self, rows: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Write ``out[i] = row rows[i]``; `out` may have any numeric dtype."""
        array = self.array
        row_bytes = prod(self.shape[1:]) * array.itemsize
        if row_bytes == 0 or len(rows) == 0:
            return
        alike = array.dtype == out.dtype and array.dtype.isnative and out.flags.writeable
        if alike and array.flags.c_contiguous and out.flags.c_contiguous:
            # np.take copies the whole of an array that is not contiguous, aligned and native; rows
            # as opaque items are always aligned. mode="clip" writes to `out` without a buffer.
            items = np.ndarray((len(array),), f"V{row_bytes}", array)
            np.take(items, rows, out=np.ndarray((len(rows),), f"V{row_bytes}", out), mode="clip")
            return
        # Arrays, never single numbers, which NumPy converts by other rules. In blocks that stay in
        # cache.
        count = max(1, _SCRATCH_BYTES // row_bytes)
        for start in range(0, len(rows), count):
            out[start : start + count] = array[rows[start : start + count]]


def open_array(array: NDArray[Any], *, axis: int | str = 0) -> Source:
    """Open an ndarray; a ``numpy.memmap`` of a file is read from the file.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        If batches can't hold its dtype.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise UnsupportedDtypeError(
            "an array must not be masked, because batches have no mask; got a masked array. "
            "Say what stands for the missing: array.filled(0)."
        )
    stored = check_dtype(array.dtype)
    row_axis = check_axis(axis, array.ndim)
    if isinstance(array, np.memmap):
        extents = _extents_of(array, stored)
        if extents is not None:
            return row_source(extents, row_axis)
    return Memory(np.moveaxis(np.asarray(array), row_axis, 0))


def _extents_of(array: np.memmap[Any, Any], stored: np.dtype[Any]) -> Extents | None:
    """Return where the map lies in its file; None if memory may differ from the file."""
    root: Any = array
    while isinstance(root.base, np.memmap):
        root = root.base
    # A copy-on-write map ("c") holds changes that the file does not.
    if root.filename is None or root.mode not in ("r", "r+", "w+") or root.base is None:
        return None
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if not -root.offset <= start <= root.nbytes:
        return None
    try:
        stamp = FileStamp.of(str(root.filename))
    except FileNotFoundError:  # deleted, but still mapped
        return None
    if root.mode != "r":
        stamp = replace(stamp, modified=None)
    layout = Layout(
        format="numpy.memmap",
        path=stamp.path,
        key=None,
        storage="contiguous" if array.flags.c_contiguous else "strided",
        codec="none",
        stored_bytes=array.nbytes,
        reading="each row by its byte offset in the file, not through the map",
    )
    return Extents(stamp, stored, array.shape, array.strides, root.offset + start, layout)


@dataclass(frozen=True, eq=False)
class ObjectReader:
    """Boxes of any object with shape, dtype and slicing."""

    target: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """As the object says."""
        return tuple(int(length) for length in self.target.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        native: np.dtype[Any] = np.dtype(self.target.dtype).newbyteorder("=")
        return native

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The object's ``chunks`` where it has regular ones, else ones."""
        chunks: Any = getattr(self.target, "chunks", None)
        regular = isinstance(chunks, tuple) and len(chunks) == len(self.shape)
        if regular and all(isinstance(length, int) and length > 0 for length in chunks):
            return tuple(chunks)
        return (1,) * len(self.shape)

    def read_box(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the elements of a box."""
        try:
            found = self.target[box]
            read = np.asarray(found)
        except Exception as error:  # whatever a foreign object raises, its rows must be named
            raise SourceError(
                f"{type(self.target).__name__} must give {_said(box)}; it raised "
                f"{type(error).__name__}: {error}."
            ) from error
        shape = tuple(part.stop - part.start for part in box)
        if read.shape != shape or read.dtype.newbyteorder("=") != self.dtype:
            raise SourceError(
                f"{type(self.target).__name__} must give {self.dtype} of shape {shape} for "
                f"{_said(box)}; got {read.dtype} of shape {read.shape}."
            )
        if np.ma.is_masked(found):
            raise SourceError(
                f"{type(self.target).__name__} must give numbers for {_said(box)}; some are "
                "masked, and batches have no mask. Fill them first, or turn masking off."
            )
        return read

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        return Layout(
            format=type(self.target).__name__,
            path=None,
            key=None,
            storage=f"chunks of {self.chunk_shape}" if max(self.chunk_shape) > 1 else "unknown",
            codec="unknown",
            stored_bytes=None,
            reading="by slices of the object, one for each run of rows",
        )


def _said(box: tuple[slice, ...]) -> str:
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"


def open_object(target: Any, *, axis: int | str = 0) -> Chunks:
    """Open any object with shape, dtype and slicing.

    Raises
    ------
    oocdata.errors.UnknownFormatError
        If it has not all three.
    """
    if not all(hasattr(target, name) for name in ("shape", "dtype", "__getitem__")):
        hint = "Convert it with np.asarray."
        if hasattr(target, "__iter__") and not hasattr(target, "__getitem__"):
            tensors = hasattr(target, "as_numpy_iterator")
            batches = "target.as_numpy_iterator()" if tensors else "it"
            hint = (
                "It is read from its beginning only: write it to a file once, with ooc.create and "
                f"writer.append(batch) for each batch in {batches}."
            )
        if hasattr(target, "keys"):
            hint = f"Pass one of its arrays: target[{next(iter(target.keys()), 'name')!r}]."
        if hasattr(target, "to_numpy"):
            hint = "Convert it: target.to_numpy()."
        raise UnknownFormatError(
            "`target` must be a path, an array, or an object with shape, dtype and slicing; got "
            f"{type(target).__name__}. {hint}"
        )
    try:
        dtype = np.dtype(target.dtype)
    except TypeError as error:
        raise UnsupportedDtypeError(
            f"`target` must have a NumPy dtype; got {target.dtype!r}."
        ) from error
    check_dtype(dtype)
    return Chunks.of(ObjectReader(target), check_axis(axis, len(target.shape)))
