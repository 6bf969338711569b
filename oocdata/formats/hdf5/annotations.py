"""Attributes and fill value of an HDF5 dataset, without those that hold names of its axes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from oocdata.engines.source import Annotations
from oocdata.formats.hdf5.file import hdf5_library, open_file, readable
from oocdata.formats.hdf5.links import find_dataset

__all__ = ["annotations_of", "read_annotations"]

_OWN = {
    *("DIMENSION_LIST", "REFERENCE_LIST", "DIMENSION_LABELS"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties"),
}
"""Attributes by which HDF5 and netCDF4 keep dimensions."""

_OF_SCALES = {"CLASS", "NAME"}
"""Those of a dimension scale; other datasets may have attributes of these names."""


def annotations_of(dataset: Any) -> Annotations:
    """Return what an open dataset says.

    Examples
    --------
    >>> import h5py
    >>> file = h5py.File("a.h5", "w", driver="core", backing_store=False)
    >>> file["u"] = [1.0, 2.0]
    >>> file["u"].attrs["units"] = "K"
    >>> annotations_of(file["u"]).attributes
    {'units': 'K'}
    """
    own = _OWN | _OF_SCALES if dataset.is_scale else _OWN
    found = {name: _value(dataset, name) for name in _names(dataset) if name not in own}
    try:
        fill_value = dataset.fillvalue
    except RuntimeError:  # it was left undefined
        fill_value = None
    return Annotations(found, fill_value)


def _names(dataset: Any) -> list[str]:
    """Return the names of the attributes.

    By their numbers: to iterate, HDF5 opens the dataset again, and refuses to while a reader holds
    it whose external files have a folder.
    """
    h5a = hdf5_library().h5a
    order = {"index_type": hdf5_library().h5.INDEX_NAME}
    count = range(h5a.get_num_attrs(dataset.id))
    names = [h5a.open(dataset.id, index=number, **order).name for number in count]
    return [name.decode("utf-8", "surrogateescape") for name in names]


def _value(dataset: Any, name: str) -> Any:
    try:
        return dataset.attrs[name]
    except (OSError, TypeError, ValueError, RuntimeError):  # of a kind that h5py can't read
        return None


def read_annotations(path: str, key: str) -> Annotations:
    """Return what a dataset says.

    Parameters
    ----------
    path : str
        The file where it lies.
    key : str

    Raises
    ------
    oocdata.errors.SourceError
        If it can't be opened.
    """
    with ExitStack() as opened, readable(path, key):
        file = opened.enter_context(open_file(path))
        return annotations_of(find_dataset(file, key, False, opened)[0])
