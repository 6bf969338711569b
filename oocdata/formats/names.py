"""Names that a file keeps beside its data: which parts are for training, say."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.dimensions import choose_key
from oocdata.formats.opening import format_of, list_datasets, open_source

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
    name = os.path.expanduser(os.fspath(path))
    found: NDArray[Any]
    if format_of(name) == "zarr":  # whose own library reads texts of varying length
        import zarr

        names = [(one or "").strip("/") for one in list_datasets(name)]
        one = choose_key(names, key.strip("/"), name)
        found = np.asarray(zarr.open_group(name, mode="r")[one])
    else:
        source = open_source(name, key)
        found = np.zeros(source.shape, source.dtype)
        if found.size and found.ndim == 1 and found.dtype.kind in "SU":
            source.read(np.zeros((1, 1), np.int64), Extent.of(source.shape), found[None])
    if found.ndim != 1 or not all(isinstance(one, str | bytes) for one in found.tolist()):
        raise UnsupportedDtypeError(
            f"names must be texts along one axis; got {found.dtype} of shape {found.shape}.",
            path=name,
            key=key,
        )
    return [one.decode() if isinstance(one, bytes) else one for one in found.tolist()]
