"""`open`: a file or an array as a View."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from numpy.typing import DTypeLike

from oocdata.datasets.view import View
from oocdata.sources.opening import Missing, open_source

__all__ = ["open"]


def open(  # noqa: A001  # the field's word, as in zarr.open; builtins.open is not used here
    target: str | os.PathLike[str] | Sequence[Any] | Any,
    key: str | None = None,
    *,
    axis: int | str = 0,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    missing: Missing = "error",
    external: bool = False,
    verify: bool | str | os.PathLike[str] | None = None,
) -> View:
    """Open an array of any size as it is: reads the header, no data.

    Parameters
    ----------
    target : path, URL, object, or list of them
        ``.npy``, ``.npz`` (stored), HDF5, netCDF4, Zarr v2 or v3, raw binary; an ndarray, memmap,
        ``h5py.Dataset``, ``zarr.Array``, ``xarray.DataArray`` (with the values that it shows, as
        long as its file is not replaced by another), or anything with shape, dtype and slicing; a
        source of your own (`oocdata.Source`). A list or a glob is one array along the rows, of
        parts that are packed alike; a glob's files come in natural order (``part2`` before
        ``part10``).
    key : str, optional
        The dataset inside an HDF5 file, Zarr group, ``.npz``, ``xarray.Dataset`` or ``DataTree``;
        not needed when there is one, coordinates of netCDF and xarray not counted.
    axis : int or str
        The row axis, by its number or by the name of a dimension (netCDF, xarray, Zarr, HDF5
        dimension scales and labels); delivered first, as by `numpy.moveaxis`.
    dtype, shape, offset
        For raw binary: the stored dtype, the shape in C order (one entry may be -1), bytes to skip.
    missing : {"error", "fill"}
        What to do about chunks that were never written or have been lost, which look the same:
        raise, or deliver the fill value.
    external : bool
        Accept HDF5 data that lies in other files.
    verify : bool or path, optional
        Compare every row with its checksum whenever it is read: in the manifest of this path, or
        (True) in the one beside the target. ``oocdata check PATH --write-manifest`` writes it.

    Returns
    -------
    View
        ``(rows, *element)`` in native byte order.

    Raises
    ------
    oocdata.errors.SourceError
        If the target can't be opened; the subclass says why (see `oocdata.errors`). Later, from
        whatever reads, `oocdata.errors.ChecksumError` if `verify` finds rows that have changed.
    oocdata.errors.ArgumentError
        If the arguments don't fit together.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/ds.npy", np.arange(12.0).reshape(6, 2))
    ...     frames = ooc.open(f"{folder}/ds.npy")
    ...     frames[4]
    array([8., 9.])
    """
    source = open_source(
        target,
        key,
        axis=axis,
        dtype=dtype,
        shape=shape,
        offset=offset,
        missing=missing,
        external=external,
        verify=verify,
    )
    return View.of(source)
