"""Convert an array to another file, format or chunking."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError
from oocdata.index import as_flag, as_path
from oocdata.tools.convert.execution import Conversion, carry_out
from oocdata.tools.convert.planning import plan_of
from oocdata.tools.opening import Opening

__all__ = ["Conversion", "convert"]


def convert(
    source: View | str | os.PathLike[str] | Any,
    destination: str | os.PathLike[str],
    *,
    key: str | None = None,
    to_key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    shards: int | Sequence[int] | None = None,
    codec: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Conversion:
    """Write an array of any size to another file, format or chunking.

    The source is not changed. The result is written in a folder beside it,
    ``<destination>.oocdata-partial``, and moved to its name when it is complete (and verified, with
    `verify`). If the process is killed, the same call resumes the conversion.

    Parameters
    ----------
    source : View, or what `oocdata.open` opens
        A View can select rows (``view[10:20]``), cut every row, and change the dtype
        (``view.astype("f4")``): numbers are rounded to a floating dtype, and any other change of a
        value is an error.
    destination : path or URL
        The suffix says the format: ``.npy``, ``.h5``, ``.hdf5``, ``.zarr`` (version 3). ``s3://``,
        ``gs://`` and ``az://`` take Zarr: chunks are uploaded as they are made, and the array's
        metadata last, so that an incomplete array is not readable. The journal is then in the
        folder for temporary files. An array in a store is never replaced.
    key : str, optional
        The dataset in the source.
    to_key : str, optional
        The array's name in an HDF5 file or Zarr group. By default, in HDF5 the name in the source
        or ``"/data"``; in Zarr, an array without a group. A file or group is written whole, with
        one array, and one that holds more is never replaced.
    chunks, shards, codec
        As for `oocdata.create`.
    verify : bool
        Read the result and the source again, and compare every bit.
    overwrite : bool
        Replace an existing array of that name, when the new one is complete.
    progress : bool
        Show a bar on standard error, if that is a terminal.

    Returns
    -------
    Conversion
        Its plan states the memory that it takes: more than `oocdata.set_memory` allows for reading,
        because rows are in flight to the result too.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the destination may not be replaced, or is the
        source.
    oocdata.errors.SourceError
        If the source can't be read, a number does not fit the view's dtype, the disk is full, or
        another process is converting to the same destination.
    oocdata.errors.DamagedChunkError
        If the result differs from the source (`verify`); the result is deleted.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> from oocdata.tools.convert import convert
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(60.0).reshape(20, 3))
    ...     done = convert(f"{folder}/a.npy", f"{folder}/a.zarr", chunks=5, verify=True)
    ...     done.verified, ooc.open(f"{folder}/a.zarr")[7]
    (True, array([21., 22., 23.]))
    """
    if isinstance(source, Dataset) and not isinstance(source, View):
        raise ArgumentError(
            f"`source` must be a View, or what oocdata.open opens; got {source!r}. To write other "
            "datasets batch by batch, use oocdata.create."
        )
    plan = plan_of(
        Opening.of(source, key).view(),
        as_path("destination", destination, allows_url=True),
        to_key=to_key,
        chunks=chunks,
        shards=shards,
        codec=codec,
        verify=as_flag("verify", verify),
        overwrite=as_flag("overwrite", overwrite),
    )
    return carry_out(plan, progress=progress)
