"""Define `Writer`, which collects rows and writes them in whole chunks."""

from __future__ import annotations

import os
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oocdata.errors import ArgumentError
from oocdata.writers.output import Output
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target

__all__ = ["Writer"]

_BLOCK_BYTES = 16 << 20
"""Bytes of rows that are collected before they are encoded, by several threads."""


class Writer:
    """An array under construction; see `create`.

    Appended rows are collected and written in whole chunks (or shards), about 16 MiB at a time, or
    one chunk if that is larger. Not thread-safe.
    """

    def __init__(self, target: Target, path: str, *, overwrite: bool = False) -> None:
        self.path = path
        self._target = target
        self._rows = 0
        self._open = True
        self._process = os.getpid()
        self._output = Output(target, Placement.of(path, target.key, target.format, overwrite))
        # Whole rows are written, even if a unit is only a part of a row.
        unit_rows = target.unit[0]
        units = max(1, _BLOCK_BYTES // max(1, unit_rows * target.row_bytes))
        self._block: NDArray[Any] = np.empty((unit_rows * units, *target.element), target.dtype)

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
            If the shape or dtype differs from the array's; nothing is cast silently.
        OSError
            If the disk is full, or fails; the writer is then closed, and its file is deleted.

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
        try:
            self._collect(batch)
        except BaseException:
            self.abandon()  # a part of the batch is written, so appending on would misplace rows
            raise

    def _collect(self, batch: NDArray[Any]) -> None:
        """Copy rows to the block, and write the block whenever it is full."""
        done = 0
        while done < len(batch):
            filled = self._rows % len(self._block)
            rows = batch[done : done + len(self._block) - filled]
            self._block[filled : filled + len(rows)] = rows
            done += len(rows)
            self._rows += len(rows)
            if filled + len(rows) == len(self._block):
                self._write(len(self._block))

    def _checked(self, rows: ArrayLike) -> NDArray[Any]:
        """Return rows as a batch, or raise if their shape or dtype is wrong."""
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
        """Write the last `count` rows, which are the first ones of the block."""
        if prod(self._target.element):
            self._output.write(self._rows - count, self._block[:count])

    def _check_open(self) -> None:
        if not self._open:
            raise ArgumentError(f"a writer must be open to be written to; '{self.path}' is closed.")
        if self._process != os.getpid():
            raise ArgumentError(
                f"a writer must be used in the process that made it; '{self.path}' was forked."
            )

    def close(self) -> None:
        """Finish the array and rename it to its final path.

        Raises
        ------
        oocdata.errors.SourceError
            If the path was taken meanwhile. The message names the path under which the array is
            kept.
        OSError
            If the disk is full, or fails; the array is then deleted.
        """
        if not self._open:
            return
        self._check_open()
        try:
            remaining = self._rows % len(self._block)
            if remaining:
                self._write(remaining)
            self._output.finish(self._rows)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Delete everything written so far; no file appears under the path."""
        if self._open and self._process == os.getpid():  # the parent of a fork owns the files
            self._open = False
            self._output.close()

    def __enter__(self) -> Writer:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def __del__(self) -> None:
        if getattr(self, "_open", False) and hasattr(self, "_output"):
            self.abandon()
