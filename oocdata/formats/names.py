"""Names that a file keeps beside its data: which parts are for training, say."""

from __future__ import annotations

import os

import numpy as np

from oocdata.box import Extent
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.opening import open_source

__all__ = ["read_names"]


def read_names(path: str | os.PathLike[str], key: str) -> list[str]:
    """Read a small dataset of texts, such as the ``mask/train`` of a robomimic file.

    Parameters
    ----------
    path : path
        HDF5, Zarr or ``.npz``.
    key : str
        A dataset of one axis: texts of a fixed length (bytes or Unicode), or of varying length.

    Returns
    -------
    list of str
        For `View.named`, or to split by.

    Raises
    ------
    oocdata.errors.MissingKeyError
        If there is no such dataset.
    oocdata.errors.UnsupportedDtypeError
        If it does not hold texts along one axis.

    Examples
    --------
    >>> import h5py, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         file["mask/train"] = [b"demo_2", b"demo_10"]
    ...     read_names(f"{folder}/a.h5", "mask/train")
    ['demo_2', 'demo_10']
    """
    source = open_source(path, key)
    if len(source.shape) != 1 or source.dtype.kind not in "SU":
        raise UnsupportedDtypeError(
            f"names must be texts along one axis; got {source.dtype} of shape {source.shape}.",
            path=os.fspath(path),
            key=key,
        )
    found = np.empty((1, *source.shape), source.dtype)
    source.read(np.zeros((1, 1), np.int64), Extent.of(source.shape), found)
    return [one.decode() if isinstance(one, bytes) else one for one in found[0].tolist()]
