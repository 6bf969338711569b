"""Create an array and write it batch by batch; it appears under its name when it is complete."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocdata.datasets.spec import as_dtype
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import local_path
from oocdata.formats.paths import is_url
from oocdata.index import as_count, as_flag, as_path
from oocdata.writers.output import Output
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target, as_codec, format_by_suffix, target_key, with_chunks

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
        placement = Placement.of(path, target.key, target.format, overwrite)
        self._output = Output(lambda _: [placement.storage(target)], placement, {})
        # Whole rows are written, even if a unit is only a part of a row.
        unit_rows = target.unit[0]
        units = max(1, _BLOCK_BYTES // max(1, unit_rows * target.row_bytes))
        self._block: NDArray[Any] = np.empty((unit_rows * units, *target.element), target.dtype)

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
            raise ArgumentError("rows must not be masked. Fill them: rows.filled(value).")
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


def create(
    path: str | os.PathLike[str],
    *,
    dtype: DTypeLike,
    element_shape: Sequence[int],
    key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    codec: str | None = None,
    overwrite: bool = False,
) -> Writer:
    """Create an array in a file, to be written batch by batch.

    The array appears under `path` only when the writer is closed without an exception. Until then
    it is written in a folder beside it, ``<path>.oocdata-partial``; at the end it is flushed to the
    disk and renamed. A process that is killed leaves only that folder, which the next `create` of
    the same path clears. If the name was taken meanwhile, the complete array stays in the folder.
    An existing array can't be appended to, because no format allows that and stays valid at every
    moment; write several files, which a glob opens as one array.

    Parameters
    ----------
    path : path
        Its suffix chooses the format: ``.npy``, ``.h5``, ``.hdf5``, ``.zarr`` (version 3). If it is
        a symbolic link, the file that it points to is written.
    dtype : dtype_like
        Of the elements; written in native byte order.
    element_shape : sequence of int
        The shape of one row; ``()`` for single numbers.
    key : str, optional
        The array's name inside an HDF5 file or Zarr group; by default ``"/data"`` in HDF5, and an
        array without a group in Zarr. A file or group is written whole, with one array.
    chunks : int or sequence of int, optional
        Rows per chunk, or a length for each axis. By default about 256 KiB of whole rows. Chunks of
        Zarr are stored in shards, files of about 32 MiB before compression.
    codec : str, optional
        In HDF5 ``"gzip"`` (the default) or ``"none"``; in Zarr ``"blosc-zstd"`` (the default),
        ``"blosc-lz4"``, ``"zstd"``, ``"gzip"`` or ``"none"``. Bytes of equal significance are
        grouped before compression, where the format has a filter for it.
    overwrite : bool
        Replace an existing array of that name when the new one is complete. A file or group that
        holds anything else is never replaced.

    Returns
    -------
    Writer
        A context manager.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or an existing array may not be replaced.
    oocdata.errors.MissingFileError
        If the folder does not exist.
    oocdata.errors.SourceError
        If another process is writing the same file.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> from oocdata.writers import create
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with create(f"{folder}/ds.zarr", element_shape=(2, 3), dtype="f4") as writer:
    ...         for number in range(4):
    ...             writer.append(np.full((5, 2, 3), number, "f4"))
    ...     frames = ooc.open(f"{folder}/ds.zarr")
    ...     frames, frames[7]
    (<View: 20 rows of (2, 3) float32>, array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float32))
    """
    name = local_path(as_path("path", path, allows_url=True))
    if is_url(name):
        raise ArgumentError(
            f"a file written batch by batch must lie on a disk; got {name!r}. Write it there, "
            "then convert it: ooc.convert(path, url)."
        )
    kind = format_by_suffix(name)
    try:
        element = tuple(as_count("element_shape", length, at_least=0) for length in element_shape)
    except TypeError:
        raise ArgumentError(
            f"`element_shape` must be a sequence of lengths; got {element_shape!r}."
        ) from None
    stored = as_dtype(dtype).newbyteorder("=")
    if is_small_float(stored):
        raise UnsupportedDtypeError(
            f"`dtype` must be one that files can describe; got {stored}. Write float32 or float16."
        )
    target = Target(
        format=kind,
        key=target_key(kind, key),
        shape=(0, *element),
        dtype=stored,
        codec=as_codec(codec, kind),
        growing=True,
    )
    return Writer(with_chunks(target, chunks), name, overwrite=as_flag("overwrite", overwrite))
