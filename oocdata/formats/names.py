"""Names that a file keeps beside its data: which parts are for training, say."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import numpy as np

from oocdata.errors import MissingKeyError, UnsupportedDtypeError
from oocdata.formats.opening import format_of, list_datasets

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
    found = _read(name, key)
    if found.ndim != 1 or not all(isinstance(one, str | bytes) for one in found.tolist()):
        raise UnsupportedDtypeError(
            f"names must be texts along one axis; got {found.dtype} of shape {found.shape}.",
            path=name,
            key=key,
        )
    return [one.decode() if isinstance(one, bytes) else one for one in found.tolist()]


def _read(path: str, key: str) -> Any:
    kind = format_of(path)
    if kind == "hdf5":
        from oocdata.formats.hdf5.file import open_file, readable
        from oocdata.formats.hdf5.links import find_dataset

        with ExitStack() as opened, readable(path, key):
            file = opened.enter_context(open_file(path))
            dataset, _ = find_dataset(file, f"/{key.strip('/')}", False, opened)
            return np.asarray(dataset[()])
    names: dict[str, str | None] = {}
    if kind != "npy":
        names = {(name or "").strip("/"): name for name in list_datasets(path)}
    if key.strip("/") not in names:
        held = ", ".join(map(repr, list(names)[:20])) or "no dataset"
        raise MissingKeyError(
            f"`key` must name a dataset in the file; got {key!r}. It holds: {held}.", path=path
        )
    if kind == "npz":
        with np.load(path, allow_pickle=False) as archive:
            return archive[names[key.strip("/")]]
    import zarr

    return np.asarray(zarr.open_group(path, mode="r")[key.strip("/")])
