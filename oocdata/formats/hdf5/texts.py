"""Text of varying length: HDF5 keeps it in a heap, where nothing but HDF5 finds it.

It is read as a whole when it is opened, and kept as text of a fixed length: labels and names of
rows, which are small beside the rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Storage
from oocdata.errors import UnsupportedDtypeError
from oocdata.formats.hdf5.file import hdf5_library
from oocdata.memory import cache_share

__all__ = ["is_text", "read_texts"]


def is_text(dataset: Any) -> bool:
    """Return whether a dataset is an array of text of varying length."""
    try:
        info = hdf5_library().check_string_dtype(dataset.dtype) if dataset.ndim else None
    except TypeError:  # of numbers that NumPy hasn't
        return False
    return info is not None and info.length is None


def read_texts(dataset: Any, storage: Storage) -> MemoryArray:
    """Read an array of text of varying length, as UTF-8 bytes of dtype ``S``.

    Raises
    ------
    oocdata.errors.UnsupportedDtypeError
        If it is too much to be kept: the longest text times their number.

    Examples
    --------
    >>> import h5py
    >>> file = h5py.File("a.h5", "w", driver="core", backing_store=False)
    >>> file["names"] = ["run 1", "run 10"]
    >>> read_texts(file["names"], Storage("HDF5")).array
    array([b'run 1', b'run 10'], dtype='|S6')
    """
    most = cache_share() // 2
    texts = dataset[...] if dataset.size * 64 <= most else None
    longest = 0 if texts is None else max(map(len, texts.flat), default=0)
    if texts is None or texts.size * longest > most:
        raise UnsupportedDtypeError(
            f"text of varying length must fit into half of the memory for chunks ({most} bytes), "
            f"where it is kept; got {dataset.size} texts of up to {longest or 'unknown'} bytes. "
            "Save it with a fixed length, or raise ooc.set_memory.",
            path=storage.path,
            key=storage.key,
        )
    array = np.array(texts, f"S{max(1, longest)}")
    reading = "once, when it was opened: text of varying length"
    described = replace(
        storage, reading=reading, chunks=None, strides=None, table_bytes=array.nbytes
    )
    return MemoryArray(array, described)
