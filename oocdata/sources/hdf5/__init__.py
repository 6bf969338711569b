"""HDF5: datasets by name, contiguous ones by byte offset, all others by chunks.

``opening`` describes a dataset as a source, with the help of ``file`` (opening and HDF5's errors),
``links`` (names), ``annotations`` (attributes), ``storage`` and ``virtual`` (what is missing or
lies elsewhere); ``reader`` reads.
"""

from oocdata.sources.hdf5.annotations import read_annotations
from oocdata.sources.hdf5.file import is_hdf5
from oocdata.sources.hdf5.opening import from_dataset, list_hdf5, open_hdf5

__all__ = ["from_dataset", "is_hdf5", "list_hdf5", "open_hdf5", "read_annotations"]
