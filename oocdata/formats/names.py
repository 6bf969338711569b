"""Read lists of names stored in a file, e.g. of the parts for training."""

from __future__ import annotations

import os

from oocdata.engines.copying import all_values
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.opening import open_source


def read_names(path: str | os.PathLike[str], key: str) -> list[str]:
    """Read a small dataset of texts, such as the ``mask/train`` of a robomimic file.

    Parameters
    ----------
    path : path
        HDF5, Zarr or ``.npz``.
    key : str
        A dataset with one axis: texts of a fixed length (bytes or Unicode), or of varying length.

    Returns
    -------
    list of str
        E.g. for `View.named` or `View.split`.

    Raises
    ------
    oocdata.errors.MissingKeyError
        If there is no such dataset.
    oocdata.errors.UnsupportedDtypeError
        If the dataset has no texts, or several axes.

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
    return all_values(source)
