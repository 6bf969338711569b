"""The writer of `create`: rows collected, written in whole chunks, and named at the end."""

from __future__ import annotations

import os
from math import prod
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.errors import ArgumentError, PositionError, SourceError
from oocdata.writers.lock import Lock
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target

__all__ = ["Writer"]

_BLOCK_BYTES = 16 << 20
"""Rows are collected up to about as much before they are encoded, by several threads."""


class Writer:
    """An array under construction; see `create`.

    Appended rows are collected up to a whole number of chunks (or shards), about 16 MiB or one if
    that is larger, and written then. Not for several threads at a time.
    """

    def __init__(self, target: Target, path: str, *, overwrite: bool = False) -> None:
        self.path = path
        self._target = target
        self._rows = 0
        self._open = True
        self._kept = ""
        self._process = os.getpid()
        self._placement = Placement.of(path, target.key, target.format, overwrite)
        self._lock = Lock(self._placement)
        try:
            self._placement.begin()
            self._storage = self._placement.storage(target)
        except BaseException:
            self._placement.remove()
            self._lock.close()
            raise
        unit = target.unit
        # Where a unit is a part of a row, whole rows are written all the same.
        count = max(1, _BLOCK_BYTES // max(1, unit[0] * target.row_bytes))
        self._block: NDArray[Any] = np.empty((unit[0] * count, *target.element), target.dtype)

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return (
            f"<Writer: {self._rows} rows of {self._target.element} {self._target.dtype}, {state}>"
        )

    def __len__(self) -> int:
        return self._rows

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows so far, *element)``."""
        return (self._rows, *self._target.element)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self._target.dtype

    def append(self, rows: ArrayLike) -> None:
        """Append one row, of shape ``element``, or a batch ``(n, *element)``.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the shape or the dtype is another: nothing is cast without a word.
        oocdata.errors.PositionError
            If there are more rows than `shape` said.
        OSError
            If the disk is full, or fails; the writer is closed then, and what it wrote is gone.

        Examples
        --------
        >>> import tempfile
        >>> from oocdata.writers import create
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with create(f"{folder}/a.npy", element_shape=(2,), dtype="f4") as writer:
        ...         writer.append(np.zeros((3, 2)))
        Traceback (most recent call last):
        oocdata.errors.ArgumentError: rows must be float32, as the array is; got float64. Convert
        them: rows.astype('float32').
        """
        self._check_open()
        batch = self._checked(rows)
        total = self._rows + len(batch)
        if not self._target.growing and total > self._target.shape[0]:
            raise PositionError(
                f"an array of {self._target.shape[0]} rows must not get more; {self._rows} are "
                f"there, and {len(batch)} came."
            )
        try:
            self._take(batch)
        except BaseException:
            self.abandon()  # a part of it is there: whoever goes on would get other rows
            raise

    def _take(self, batch: NDArray[Any]) -> None:
        done = 0
        while done < len(batch):
            held = self._rows % len(self._block)
            some = batch[done : done + len(self._block) - held]
            self._block[held : held + len(some)] = some
            done += len(some)
            self._rows += len(some)
            if held + len(some) == len(self._block):
                self._write(len(self._block))

    def _checked(self, rows: ArrayLike) -> NDArray[Any]:
        if isinstance(rows, np.ma.MaskedArray):
            raise ArgumentError(
                "rows must not be masked, for a file has no place for the mask; got a masked "
                "array. Fill it: rows.filled(value)."
            )
        try:
            array = np.asarray(rows)
        except ValueError as error:  # lists of unequal length
            raise ArgumentError(f"rows must make one array; {error}.") from error
        element, dtype = self._target.element, self._target.dtype
        if array.shape == element:
            array = array[None]
        if array.shape[1:] != element or array.ndim != 1 + len(element):
            raise ArgumentError(
                f"rows must have the shape {element}, or (n, {', '.join(map(str, element))}); got "
                f"{np.shape(rows)}."
            )
        if array.dtype.newbyteorder("=") != dtype:
            raise ArgumentError(
                f"rows must be {dtype}, as the array is; got {array.dtype}. Convert them: "
                f"rows.astype('{dtype}')."
            )
        return array

    def _write(self, count: int) -> None:
        first = self._rows - count
        box = (slice(first, self._rows), *(slice(0, length) for length in self._target.element))
        if prod(self._target.element):
            self._storage.write(box, self._block[:count])

    def _check_open(self) -> None:
        if not self._open:
            raise ArgumentError(f"a writer must be open to be written to; '{self.path}' is closed.")
        if self._process != os.getpid():
            raise ArgumentError(
                f"a writer must be used in the process that made it; '{self.path}' was forked."
            )

    def close(self) -> None:
        """Finish the array and give it its name.

        Raises
        ------
        oocdata.errors.ArgumentError
            If there are fewer rows than `shape` said.
        oocdata.errors.SourceError
            If its name was taken meanwhile, or the HDF5 file changed to which it is added. The
            message tells where the array is kept then.
        OSError
            If the disk is full, or fails; what was written is gone.
        """
        if not self._open:
            return
        self._check_open()
        known = not self._target.growing
        if known and self._rows != self._target.shape[0]:
            self.abandon()
            raise ArgumentError(
                f"an array of {self._target.shape[0]} rows must get as many before it is closed; "
                f"got {self._rows}. Nothing was written. Give `element_shape` where the number is "
                "not known."
            )
        try:
            left = self._rows % len(self._block)
            if left:
                self._write(left)
            self._storage.close(self._rows)
            self._lock.check()
            self._place()
        finally:
            self.abandon()

    def _place(self) -> None:
        """Give the complete array its name; what has taken hours is not lost where that fails."""
        placement = self._placement
        made = placement.inode
        try:
            placement.place()
        except Exception as error:
            if placement.inode != made:  # it has its name
                raise
            self._kept = placement.keep()
            raise SourceError(
                f"a complete array must get its name; {error} It was kept as '{self._kept}': "
                "rename that, before you write another one.",
                path=self.path,
            ) from error

    def abandon(self) -> None:
        """Throw away what was written: there will be nothing under the path."""
        if self._open and self._process == os.getpid():  # what is forked belongs to another
            self._open = False
            self._storage.abandon()
            # Or the folder is another's by now, or the array must stay in it.
            if self._lock.held() and self._kept != self._placement.result:
                self._placement.remove()
            self._lock.close()

    def __enter__(self) -> Writer:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        if getattr(self, "_open", False) and hasattr(self, "_storage"):
            self.abandon()
