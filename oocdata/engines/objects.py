"""Anything that slices, and sources of the user's own: objects with shape, dtype and a way to read.

Such an object is called by one thread at a time: many of them (files of other libraries, lazy
arrays) are not made for more.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, covered
from oocdata.engines.places import copy_boxes, read_through
from oocdata.engines.source import RowSource, Storage
from oocdata.errors import SourceError

__all__ = ["RowReader", "Sliced", "regular_chunks"]

_MOST_BYTES = 8 << 20
"""Of neighbouring boxes that are asked for as one."""

_SCRATCH_BYTES = 1 << 20


class _Lock:
    """One for each object, however often it was opened."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_locks: WeakValueDictionary[int, _Lock] = WeakValueDictionary()
_finding = threading.RLock()
"""`setdefault` takes several steps: two threads would find a lock each."""


def _lock_of(target: object) -> _Lock:
    # Whoever has the lock holds its object too, so the identity stays that object's.
    with _finding:
        return _locks.setdefault(id(target), _Lock())


def _renew_after_fork() -> None:
    global _finding
    _finding = threading.RLock()
    for one in list(_locks.values()):
        one.lock = threading.Lock()  # a thread that is not here may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def regular_chunks(target: Any) -> tuple[int, ...] | None:
    """Return an object's ``chunks`` where it has regular ones, at most as long as its axes.

    Examples
    --------
    >>> regular_chunks(np.zeros(3)) is None
    True
    """
    chunks, shape = getattr(target, "chunks", None), target.shape
    if not isinstance(chunks, tuple) or len(chunks) != len(shape) or not all(shape):
        return None
    if not all(isinstance(length, int) and length > 0 for length in chunks):
        return None
    return tuple(min(int(n), int(length)) for n, length in zip(shape, chunks, strict=True))


class Sliced:
    """Any object with shape, dtype and slicing.

    Parameters
    ----------
    target : object
        ``target[slice, slice, …]`` gives an array.
    storage : Storage
    axis : int
        The axis whose places errors call rows.
    """

    def __init__(self, target: Any, storage: Storage, *, axis: int = 0) -> None:
        self.target, self.axis, self._storage = target, axis, storage
        self.shape = tuple(int(length) for length in target.shape)
        self.dtype: np.dtype[Any] = np.dtype(target.dtype).newbyteorder("=")
        self._lock = _lock_of(target)

    def __reduce__(self) -> Any:
        return partial(Sliced, axis=self.axis), (self.target, self._storage)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self._storage

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        # In order and each once: what a foreign object does for a slice may take long.
        wanted, which = np.unique(origins, axis=0, return_inverse=True)
        which = which.ravel()
        order = which.argsort(kind="stable")
        ordered = which[order]
        most = max(1, _MOST_BYTES // (prod(extent.spans) * self.dtype.itemsize))
        axis, borders = _neighbours(wanted, extent, most)
        for start, stop in pairwise(borders):
            boxes = self._read_neighbours(wanted[start:stop], extent, axis)
            places = order[ordered.searchsorted(start) : ordered.searchsorted(stop)]
            if len(places) == 1:
                out[places[0]] = boxes[0]
            else:
                out[places] = boxes[which[places] - start]

    def _read_neighbours(
        self, origins: NDArray[np.int64], extent: Extent, axis: int
    ) -> NDArray[Any]:
        """Return boxes that follow on one another along an axis, read as one."""
        count, length = len(origins), extent.lengths[axis]
        spans, strides = list(extent.spans), list(extent.strides)
        if count > 1:
            spans[axis], strides[axis] = count * length, 1
        box = tuple(
            slice(start, start + span)
            for start, span in zip(origins[0].tolist(), spans, strict=True)
        )
        try:
            found = self.found(box)
        except SourceError as error:
            error.concern(covered(origins, extent, self.axis))
            raise
        found = found[tuple(slice(None, None, stride) for stride in strides)]
        split = found.reshape(*found.shape[:axis], count, length, *found.shape[axis + 1 :])
        return np.moveaxis(split, axis, 0)

    def found(self, box: tuple[slice, ...]) -> NDArray[Any]:
        """Return the numbers of a box, checked: what a foreign object gives may be anything.

        Raises
        ------
        oocdata.errors.SourceError
            If the object raises, or gives another shape, another dtype or masked numbers.
        """
        target, name = self.target, type(self.target).__name__
        try:
            with self._lock.lock:
                found = target[box]
                read = np.asarray(found)
        except Exception as error:
            raise SourceError(
                f"{name} must give {_said(box)}; it raised {type(error).__name__}: {error}.",
                path=self._storage.path,
                key=self._storage.key,
            ) from error
        shape = tuple(part.stop - part.start for part in box)
        problem = ""
        if read.shape != shape or read.dtype.newbyteorder("=") != self.dtype:
            problem = (
                f"{name} must give {self.dtype} of shape {shape} for {_said(box)}; got "
                f"{read.dtype} of shape {read.shape}."
            )
        elif np.ma.is_masked(found):
            problem = (
                f"{name} must give numbers for {_said(box)}; some are masked, and batches have no "
                "mask. Fill them first, or turn masking off."
            )
        if problem:
            raise SourceError(problem, path=self._storage.path, key=self._storage.key)
        return read


def _said(box: tuple[slice, ...]) -> str:
    return "[" + ", ".join(f"{part.start}:{part.stop}" for part in box) + "]"


def _neighbours(origins: NDArray[np.int64], extent: Extent, most: int) -> tuple[int, list[int]]:
    """Return an axis along which boxes follow on one another, and where such runs begin and end.

    Examples
    --------
    >>> _neighbours(np.array([[4, 0], [5, 0], [6, 0], [0, 0]]), Extent.of((1, 9)), 100)
    (0, [0, 3, 4])
    """
    steps = origins[1:] - origins[:-1]
    best, alone = 0, np.ones(len(steps), np.bool_)
    for axis, (length, stride) in enumerate(zip(extent.lengths, extent.strides, strict=True)):
        if length == 1 or stride == 1:
            next_one = np.zeros(len(extent.lengths), np.int64)
            next_one[axis] = length
            others = (steps != next_one).any(axis=1)
            if np.count_nonzero(others) < np.count_nonzero(alone):
                best, alone = axis, others
    borders = [0]
    for border in [*(alone.nonzero()[0] + 1).tolist(), len(origins)]:
        borders.extend(range(borders[-1] + most, border, most))
        borders.append(border)
    return best, borders


class RowReader:
    """A user's `oocdata.engines.source.RowSource`, which reads whole rows alone.

    Parameters
    ----------
    rows : RowSource

    Examples
    --------
    >>> class Squares:
    ...     shape, dtype = (100,), np.dtype("f8")
    ...     def read_rows(self, rows, out):
    ...         out[:] = rows**2
    >>> out = np.zeros((2, 3), "f4")
    >>> RowReader(Squares()).read(np.array([[2], [7]]), Extent.of((3,)), out)
    >>> out.tolist()
    [[4.0, 9.0, 16.0], [49.0, 64.0, 81.0]]
    """

    def __init__(self, rows: RowSource) -> None:
        self.rows = rows
        self.shape = tuple(int(length) for length in rows.shape)
        self.dtype = np.dtype(rows.dtype)

    def __reduce__(self) -> Any:
        return RowReader, (self.rows,)

    def storage(self) -> Storage:
        """Return what can be said of it."""
        return Storage(
            format=type(self.rows).__name__,
            layout="single rows",
            reading="by the source's own `read_rows`",
        )

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        if out.size == 0:
            return
        element, length = self.shape[1:], extent.lengths[0]
        whole = extent.lengths[1:] == element
        if whole and out.flags.c_contiguous and out.dtype == self.dtype:
            rows = (origins[:, :1] + np.arange(length) * extent.strides[0]).ravel()
            self.rows.read_rows(rows, out.reshape(len(rows), *element))
            return
        # Whole rows, of which a box begins at 0 along the first axis.
        whole_rows = Extent((length, *element), (extent.strides[0], *[1] * len(element)))
        within = Extent(extent.lengths, (1, *extent.strides[1:]))
        first, inner = origins.copy(), origins.copy()
        first[:, 1:], inner[:, 0] = 0, 0
        for some, read in read_through(self, first, whole_rows, self.dtype, _SCRATCH_BYTES):
            copy_boxes(read, inner[some], within, out[some])
