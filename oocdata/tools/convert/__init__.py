"""`convert`: an array from one format, or one way of chunking, to another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, DamagedChunkError
from oocdata.index import as_flag, as_path
from oocdata.tools.convert.choosing import MEMORY, plan_of
from oocdata.tools.convert.work import Conversion, carry_out
from oocdata.tools.opening import Opening
from oocdata.writers.codec import Shuffled

__all__ = ["MEMORY", "Conversion", "convert"]


def convert(
    source: View | str | os.PathLike[str] | Any,
    destination: str | os.PathLike[str],
    *,
    key: str | None = None,
    to_key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    shards: int | Sequence[int] | None = None,
    codec: str | None = None,
    shuffle: Shuffled | None = None,
    memory: int = MEMORY,
    verify: bool = False,
    overwrite: bool = False,
    progress: bool = False,
) -> Conversion:
    """Write an array of any size to another file, format or chunking.

    What is read is left alone. The result is made in a folder beside its name,
    ``<destination>.oocdata-partial``, and gets its name when it is complete (and verified, if
    that was asked for). If this process is killed, the same call goes on where it was.

    Parameters
    ----------
    source : View, or what `oocdata.open` opens
        With a View, chosen rows (``view[10:20]``), cuts of every row and another dtype
        (``view.astype("f4")``) are possible: numbers are rounded to a floating dtype, but none is
        turned into another one.
    destination : path or URL
        Its suffix says the format: ``.npy``, ``.h5``, ``.hdf5``, ``.zarr`` (version 3). At ``s3://``,
        ``gs://`` and ``az://`` Zarr: chunks are put as they are made, the array's metadata last, so
        that there is no array before it is complete. What tells how far it came lies in the folder
        for temporary files then. An array in a store is never replaced.
    key : str, optional
        The dataset inside the source.
    to_key : str, optional
        The array's name in an HDF5 file or Zarr group. By default that of the source in HDF5, else
        ``"/data"``; a Zarr array of its own. What else the file holds stays; in an HDF5 file also
        the room of an array that is replaced, until ``h5repack`` takes it away.
    chunks, shards, codec, shuffle
        As for `oocdata.create`.
    memory : int
        Bytes for what is under way; more only where a single chunk asks for it. The plan says what
        is taken at most.
    verify : bool
        Read the result back, and the source again, and compare every bit.
    overwrite : bool
        An array of that name may be replaced, when the new one is complete.
    progress : bool
        Show a bar on standard error, where that is a terminal.

    Returns
    -------
    Conversion

    Raises
    ------
    oocdata.errors.ArgumentError
        If the arguments don't fit together, or the destination may not be replaced, or is the
        source.
    oocdata.errors.SourceError
        If the source can't be read, a number doesn't fit the view's dtype, the disk is too full, or
        another process is at it.
    oocdata.errors.DamagedChunkError
        If the result is not what the source is (`verify`); then there is none.

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
            f"`source` must be a View, or what oocdata.open opens; got {source!r}. Write what is "
            "made of an array batch by batch: oocdata.create."
        )
    plan = plan_of(
        Opening.of(source, key).view(),
        as_path("destination", destination),
        to_key=to_key,
        chunks=chunks,
        shards=shards,
        codec=codec,
        shuffle=shuffle,
        memory=memory,
        verify=as_flag("verify", verify),
        overwrite=as_flag("overwrite", overwrite),
    )
    done = carry_out(plan, progress=progress)
    if done.verified is False:
        raise DamagedChunkError(
            "the result must hold every bit of the source; some rows differ, in the file that was "
            "written or in what the source gave twice. The result was thrown away. Is the disk or "
            "the memory sound?",
            path=plan.placement.path,
            key=plan.target.key,
            rows=done.differing_rows,
        )
    return done
