"""HDF5 for a check: a dataset whose chunks are not all there opens, and the rows are known."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from oocdata.errors import MissingChunkError, MissingFileError
from oocdata.formats.anndata import is_one_array
from oocdata.formats.codecs import grid_of
from oocdata.formats.hdf5 import open_hdf5
from oocdata.formats.hdf5.file import fill_value, hdf5_library, open_file, readable
from oocdata.formats.hdf5.links import choose_dataset, find_dataset, group_attributes
from oocdata.formats.hdf5.storage import offset_of
from oocdata.formats.hdf5.table import present_chunks
from oocdata.tools.check.opening import Opened
from oocdata.tools.check.ranges import Ranges, ranges_of
from oocdata.tools.check.rows import Fault
from oocdata.tools.opening import Opening

__all__ = ["opened_hdf5"]


def opened_hdf5(opening: Opening) -> Opened:
    """Open a dataset whether or not all its chunks were written."""
    path, key, external = opening.target, opening.key, opening.external
    assert key is None or isinstance(key, str)
    with ExitStack() as stack, readable(path, key):
        file = stack.enter_context(open_file(path))
        name = choose_dataset(file) if key is None else f"/{key.strip('/')}"
        one_array = is_one_array(group_attributes(file, name))
        view = replace(opening, key=name, missing=None if one_array else "fill").view()
        if one_array:
            return Opened(view)
        (axis,) = view.axes
        dataset, name = find_dataset(file, name, external, stack)
        unwritten = _unwritten(dataset, axis)
        fill, chunked = fill_value(dataset, undefined=0), bool(dataset.chunks)
    faults = [] if chunked else _missing_elsewhere(path, name, axis, external)
    if unwritten.count:
        reason = (
            f"every chunk must have been written; {unwritten.count:,} rows lie in chunks that "
            f"never were. They read as the fill value {fill}."
        )
        faults = [Fault("unwritten", reason, unwritten)]
    return Opened(view, (*faults,))


def _unwritten(dataset: Any, axis: int) -> Ranges:
    """Return the rows that were never written."""
    h5d = hdf5_library().h5d
    plist, shape, steps = dataset.id.get_create_plist(), dataset.shape, dataset.chunks
    unwritten = Ranges()
    if plist.get_layout() == h5d.CHUNKED:
        grid = grid_of(shape, steps)
        missing = np.ones(grid, np.bool_)
        if dataset.size:
            missing.flat[present_chunks(dataset).numbers] = False
        others = tuple(place for place in range(len(grid)) if place != axis)
        along = np.asarray(missing.any(axis=others))
        unwritten.add_all(ranges_of(along, 0, steps[axis], shape[axis]))
        return unwritten
    one_run = plist.get_layout() == h5d.CONTIGUOUS and not plist.get_external_count()
    if one_run and dataset.size and offset_of(dataset.id) is None:
        unwritten.add(range(shape[axis]))
    return unwritten


def _missing_elsewhere(path: str, name: str, axis: int, external: bool) -> list[Fault]:
    """Return what is missing of the files that a dataset is made of, or of its chunks."""
    try:
        open_hdf5(path, name, axis=axis, external=external)
    except (MissingChunkError, MissingFileError) as error:
        rows = sorted(set(error.rows or ()))
        return [Fault("missing", error.message, Ranges(range(row, row + 1) for row in rows))]
    return []
