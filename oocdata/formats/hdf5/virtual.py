"""Check that the sources of virtual datasets are complete.

HDF5 silently reads the fill value where a source can't be opened, or none is mapped (RFC: HDF5
Virtual Dataset). Of a source smaller than its mapping, HDF5 1.14 reads elements of other rows, or
crashes. So each mapping is checked, down to the source's chunks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from h5py import h5s

from oocdata.box import Ints
from oocdata.engines.files import FileVersion
from oocdata.errors import (
    ExternalDataError,
    MissingChunkError,
    MissingFileError,
    MissingKeyError,
    UnknownFormatError,
    error_location,
)
from oocdata.formats.hdf5.file import find_external_file
from oocdata.formats.hdf5.links import Hdf5Names
from oocdata.formats.hdf5.storage import Rules, Stored, inspect_stored, kind_of, missing_error

_MOST_NESTED = 8


def inspect_storage(dataset: Any, rules: Rules) -> Stored:
    """Return how a dataset is stored, after checking that all of it can be read.

    The source of every mapping of a virtual dataset is checked too. Files that the rules don't
    allow are not opened. Mappings that overlap, are unlimited, or are nested too deep, are refused.
    """
    if kind_of(dataset) != "virtual":
        return inspect_stored(dataset, rules)
    if rules.depth > _MOST_NESTED:
        raise UnknownFormatError(
            f"virtual datasets must be nested at most {_MOST_NESTED} deep; these are deeper, or "
            "hold themselves."
        )
    if not dataset.shape:
        raise UnknownFormatError(
            "a virtual dataset must have an axis; this is a single number. Open its source instead."
        )
    own_path, mappings = dataset.file.filename, list(_mappings(dataset))
    names = dict.fromkeys(mapping.file_name for mapping in mappings)
    elsewhere = [name for name in names if not _is_itself(own_path, name)]
    if elsewhere and not rules.external:
        more = f" and {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
        raise ExternalDataError(
            "the sources of a virtual dataset must lie in the file itself; these lie in "
            f"{elsewhere[0]!r}{more}. If you trust the file, pass external=True."
        )
    sources: dict[tuple[str, str], tuple[tuple[int, ...], Stored]] = {}
    """Shape and storage of the sources that have been checked, by path and name."""
    for mapping in mappings:
        path, name = _source_path(own_path, mapping, rules), mapping.dset_name
        if path is None:
            continue
        try:
            if (path, name) not in sources:
                sources[path, name] = _inspect_source(dataset, path, name, rules)
        except MissingKeyError as error:
            if rules.fill:
                continue
            what = f"the source {name!r} in {path!r} is not there: it was"
            raise missing_error(what, _rows(mapping, rules), dataset) from error
        shape, _ = sources[path, name]
        if not _fits(mapping, shape):
            raise MissingChunkError(
                f"the source {name!r} in {path!r} must hold all that is mapped to it; it has the "
                f"shape {shape}. HDF5 would read other elements or crash, and fills nothing. Write "
                "the dataset again, or open its sources as a list.",
                rows=_rows(mapping, rules),
            )
    holes = _holes(dataset, mappings, rules)
    if len(holes) and not rules.fill:
        raise missing_error("what no source is mapped to was", holes, dataset)
    inner = [stored for _, stored in sources.values()]
    filters = dict.fromkeys(number for stored in inner for number in stored.filters)
    outside = dict.fromkeys(file for stored in inner for file in stored.outside)
    return Stored("virtual", tuple(filters), tuple(outside), _chunks(inner, dataset.ndim))


def _chunks(sources: list[Stored], ndim: int) -> tuple[int, ...] | None:
    """Return the lengths of the longest chunks of sources, if all sources must be decoded.

    Rows of one chunk are then read together, since HDF5 decodes the chunk for each that it reads
    alone: shuffled 4 KB rows of gzip chunks of 32 rows take 1 / 7 of the processor time.
    """
    shapes = {stored.chunks if stored.filters else None for stored in sources}
    ranks = {0 if shape is None else len(shape) for shape in shapes}
    if len(ranks) != 1 or not 0 < max(ranks) <= ndim:
        return None
    longest = map(max, zip(*filter(None, shapes), strict=True))
    return (*[1] * (ndim - max(ranks)), *longest)


def _mappings(dataset: Any) -> Iterator[Any]:
    """Yield the mappings of a virtual dataset, with the names of sources as they are in files."""
    for mapping in dataset.virtual_sources():
        if _is_unlimited(mapping):
            raise UnknownFormatError(
                "the sources of a virtual dataset must be countable; got a mapping without end "
                f"({mapping.file_name!r}, {mapping.dset_name!r}), whose missing parts can't be "
                "known. Open its sources instead, several as a list."
            )
        file, name = (each.replace("%%", "%") for each in (mapping.file_name, mapping.dset_name))
        yield mapping._replace(file_name=file, dset_name=name)


def _inspect_source(
    dataset: Any, path: str, name: str, rules: Rules
) -> tuple[tuple[int, ...], Stored]:
    """Return shape and storage of a source, with its file if that is not the dataset's own."""
    own_path = dataset.file.filename
    file = dataset.file if path == own_path else None
    with Hdf5Names(path, external=rules.external, file=file) as tree:
        source, _ = tree.dataset(name)
        home = source.file.filename  # differs from `path` after an external link
        inner = replace(rules, path=home, key=name, axis=0, depth=rules.depth + 1)
        with error_location(home, name):
            stored = inspect_storage(source, inner)
        if home != own_path:
            stored = replace(stored, outside=(*stored.outside, FileVersion.of(home)))
        return source.shape or (), stored


def _source_path(own_path: str, mapping: Any, rules: Rules) -> str | None:
    """Return the path of a mapping's source file; None if it is missing and that is allowed."""
    if _is_itself(own_path, mapping.file_name):
        return own_path
    path = find_external_file(own_path, mapping.file_name, "HDF5_VDS_PREFIX")
    if path is None and not rules.fill:
        raise MissingFileError(
            f"the source file {mapping.file_name!r} of a virtual dataset must be there; it is "
            'not. Pass missing="fill" to read the fill value there.',
            rows=_rows(mapping, rules),
        )
    return path


def _is_itself(path: str, name: str) -> bool:
    """Return whether the name of a source file means the file itself; opens nothing."""
    if name == "." or os.environ.get("HDF5_VDS_PREFIX"):
        return name == "."
    absolute = os.path.abspath(path)
    return os.path.normpath(os.path.join(os.path.dirname(absolute), name)) == absolute


def _is_unlimited(mapping: Any) -> bool:
    """Return whether a mapping has no end, or a numbered series of sources (``%b``)."""
    names = mapping.file_name, mapping.dset_name
    return any("%b" in name.replace("%%", "") for name in names) or any(
        h5s.UNLIMITED in (*space.get_regular_hyperslab()[2], *space.get_regular_hyperslab()[3])
        for space in (mapping.vspace, mapping.src_space)
        if _is_regular(space)
    )


def _is_regular(space: Any) -> bool:
    hyperslabs = space.get_select_type() == h5s.SEL_HYPERSLABS
    return bool(hyperslabs and space.is_regular_hyperslab())


def _rows(mapping: Any, rules: Rules) -> range:
    first, last = mapping.vspace.get_select_bounds()
    return range(first[rules.axis], last[rules.axis] + 1)


def _fits(mapping: Any, shape: tuple[int, ...]) -> bool:
    space = mapping.src_space
    if space.get_select_type() == h5s.SEL_ALL:
        return prod(shape) == int(mapping.vspace.get_select_npoints())
    last = space.get_select_bounds()[1]
    return len(last) == len(shape) and all(
        end < length for end, length in zip(last, shape, strict=True)
    )


def _holes(dataset: Any, mappings: list[Any], rules: Rules) -> Ints:
    """Return the rows that mappings don't cover completely; raise if mappings overlap."""
    if not dataset.size:
        return np.empty(0, np.int64)
    shape = dataset.shape
    left = dataset.id.get_space()
    left.select_hyperslab((0,) * len(shape), (1,) * len(shape), None, shape)
    for mapping in mappings:
        space, before = mapping.vspace, left.get_select_npoints()
        _deselect(left, space)
        ends = space.get_select_bounds()[1]
        inside = all(end < length for end, length in zip(ends, shape, strict=True))
        if inside and before - left.get_select_npoints() < space.get_select_npoints():
            raise UnknownFormatError(
                "the sources of a virtual dataset must not overlap, because HDF5 may read any of "
                f"them there; {mapping.dset_name!r} in {mapping.file_name!r} overlaps others. "
                "Write the dataset without overlaps, or open its sources."
            )
    if not left.get_select_npoints():
        return np.empty(0, np.int64)
    blocks = np.asarray(left.get_select_hyper_blocklist(), np.int64)[:, :, rules.axis]
    runs = [np.arange(first, last + 1) for first, last in np.unique(blocks, axis=0)]
    return np.unique(np.concatenate(runs))


def _deselect(left: Any, space: Any) -> None:
    if space.get_select_type() == h5s.SEL_ALL:
        left.select_none()
    elif _is_regular(space):
        start, stride, count, block = space.get_regular_hyperslab()
        left.select_hyperslab(start, count, stride, block, op=h5s.SELECT_NOTB)
    else:
        for first, last in np.asarray(space.get_select_hyper_blocklist()):
            block = tuple((last + 1 - first).tolist())
            count = (1,) * len(block)
            left.select_hyperslab(tuple(first.tolist()), count, None, block, op=h5s.SELECT_NOTB)
