"""Open HDF5 datasets with chunks that were never written, and find the rows in these chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from h5py import h5d

from oocdata.errors import MissingChunkError, MissingFileError
from oocdata.formats.anndata import is_one_array
from oocdata.formats.codecs import chunk_grid
from oocdata.formats.hdf5.file import fill_value, open_file, translate_errors
from oocdata.formats.hdf5.links import choose_dataset, find_dataset, group_attributes
from oocdata.formats.hdf5.storage import offset_of
from oocdata.formats.hdf5.table import present_chunks
from oocdata.tools.check.opening import Opened
from oocdata.tools.check.result import Finding
from oocdata.tools.check.rows import ranges_of
from oocdata.tools.opening import Opening

__all__ = ["opened_hdf5"]


def opened_hdf5(opening: Opening) -> Opened:
    """Open a dataset; report its unwritten chunks, or the missing files that it refers to."""
    path, key, external = opening.target, opening.key, bool(opening.arguments.get("external"))
    assert key is None or isinstance(key, str)
    with ExitStack() as stack, translate_errors(path, key):
        file = stack.enter_context(open_file(path))
        name = choose_dataset(file) if key is None else f"/{key.strip('/')}"
        opening = replace(opening, key=name)
        try:
            return opening.view(), []
        except (MissingChunkError, MissingFileError) as error:
            if is_one_array(group_attributes(file, name)):
                raise
            missing = Finding("missing", error.message)
            missing.add(range(row, row + 1) for row in sorted(set(error.rows or ())))
        view = Opening.of(opening, missing="fill").view()
        (axis,) = view.axes
        dataset, _ = find_dataset(file, name, external, stack)
        unwritten = Finding("unwritten", "")
        unwritten.add(_unwritten(dataset, axis))
        unwritten.reason = (
            f"every chunk must have been written; {unwritten.row_count:,} rows are in chunks that "
            f"were not. They read as the fill value {fill_value(dataset, undefined=0)}."
        )
    return view, [unwritten if unwritten.row_count else missing]


def _unwritten(dataset: Any, axis: int) -> Iterator[range]:
    """Yield the rows that were never written."""
    plist, shape, steps = dataset.id.get_create_plist(), dataset.shape, dataset.chunks
    if plist.get_layout() == h5d.CHUNKED:
        grid = chunk_grid(shape, steps)
        absent = np.ones(grid, np.bool_)
        if dataset.size:
            absent.flat[present_chunks(dataset).numbers] = False
        other_axes = tuple(other for other in range(len(grid)) if other != axis)
        along_axis = np.asarray(absent.any(axis=other_axes))
        yield from ranges_of(along_axis, 0, steps[axis], shape[axis])
        return
    is_contiguous = plist.get_layout() == h5d.CONTIGUOUS and not plist.get_external_count()
    if is_contiguous and dataset.size and offset_of(dataset.id) is None:
        yield range(shape[axis])
