"""Open HDF5 datasets by name, or those of the user; `found` chooses how each is read."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import h5py

from oocdata.engines.axes import axis_numbers
from oocdata.engines.files import Version
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, error_location, location_text
from oocdata.formats.anndata import column_names
from oocdata.formats.hdf5.description import (
    describe,
    directions,
    is_plain,
    scales_of,
    stored_dtype,
)
from oocdata.formats.hdf5.file import (
    limit_metadata_cache,
    open_file,
    translate_errors,
    version_of_open,
)
from oocdata.formats.hdf5.found import Found
from oocdata.formats.hdf5.links import Hdf5Names, annotated, units_of
from oocdata.formats.hdf5.parts import join_datasets, read_annotations
from oocdata.formats.hdf5.storage import Rules
from oocdata.formats.hdf5.virtual import inspect_storage
from oocdata.formats.paths import is_url
from oocdata.formats.patterns import Key, Missing


class Hdf5Tree(Hdf5Names):
    """The datasets of an HDF5 file; `missing` and `external` as in `oocdata.open`.

    Rows in errors are positions along the first sample axis.
    """

    def __init__(
        self, path: str, *, missing: Missing | None = None, external: bool = False
    ) -> None:
        if external and is_url(path):
            raise ArgumentError(
                "`external` must be left out for a file at a URL: others beside it are not looked "
                "for."
            )
        super().__init__(path, external=external)
        self.options |= {} if missing is None else {"missing": missing}

    def open_found(self, name: str, axis: int | str) -> tuple[Found, Source]:
        """Return a dataset as it was inspected, and the source that reads it."""
        with translate_errors(self.path, name), ExitStack() as opened_files:
            dataset, key = self.dataset(name, opened_files)
            # After an external link this is the file that holds the dataset.
            version = version_of_open(dataset.file)
            with error_location(version.path, key):
                rules = Rules(
                    version.path, key, 0, self.options.get("missing") == "fill", self.external
                )
                opened = {**self.arguments(key), "target": version.path}
                found = _inspected(dataset, version, rules, axis, opened)
                return found, found.source()

    def open_array(self, name: str, axis: int | str) -> Source:
        """Open a dataset; see `Tree`."""
        return self.open_found(name, axis)[1]

    def join(self, key: Key, axis: int | str) -> Source:
        """Open several datasets as one array; see `Tree`."""
        limit_metadata_cache(self.file, walks=True)
        return join_datasets(self, key, axis)


def from_dataset(
    dataset: Any, *, axis: int | str = 0, missing: Missing | None = None, external: bool = False
) -> Source:
    """Open an ``h5py.Dataset``; arguments and errors are those of `oocdata.open`.

    A dataset of a file on disk that is open for reading is described by path and name: it can be
    pickled, and is read as one opened by path. Any other (in memory, in a file-like object, open
    for writing) is read through the object, which must stay open.
    """
    if not isinstance(dataset, h5py.Dataset) or not dataset:
        raise ArgumentError(f"`target` must be an open h5py.Dataset; got {dataset!r}.")
    path, key = dataset.file.filename, dataset.name
    if _can_be_reopened(dataset):
        with Hdf5Tree(path, missing=missing, external=external) as tree:
            return tree.open(key, axis)
    with translate_errors(path, key):
        rules = Rules(path, key, 0, missing == "fill", external)
        return _inspected(dataset, None, rules, axis, None).source()


def _can_be_reopened(dataset: Any) -> bool:
    """Return whether the dataset can be opened again by its path and name."""
    file, name = dataset.file, dataset.name
    if file.driver != "sec2" or file.mode != "r" or file.swmr_mode or name is None:
        return False
    access = dataset.id.get_access_plist()
    if access.get_virtual_prefix():
        return False
    try:
        # The path may be relative to a folder that is no longer the current one.
        if not os.path.samestat(os.stat(file.filename), os.fstat(file.id.get_vfd_handle())):
            return False
        with open_file(file.filename) as again:
            return bool(again[name].id == dataset.id)
    except (OSError, KeyError):  # e.g. the user's file is open without locking
        return False


def _inspected(
    dataset: Any, version: Version | None, rules: Rules, axis: int | str, opened: Any
) -> Found:
    """Inspect an open dataset, which is read through the object itself where `version` is None.

    `opened` are the arguments of `oocdata.open` that open it again, or None.
    """
    path, key = rules.path, rules.key
    dtype, is_varying = stored_dtype(dataset)
    if dataset.shape is None:
        raise ArgumentError(
            f"an array must have a row axis; got an empty dataspace. [{location_text(path, key)}]"
        )
    scales = scales_of(dataset)
    storage = describe(dataset, path, key, scales, units_of(dataset))
    (rows,) = axis_numbers(axis, dataset.ndim, storage)
    rules = replace(rules, axis=rows)
    stored = inspect_storage(dataset, rules)
    if version is None:
        storage = replace(storage, annotations=partial(annotated, dataset))
    else:
        storage = replace(
            storage,
            files=(version, *stored.outside),
            columns=column_names(path, key or ""),
            opened=opened,
            annotations=partial(read_annotations, path, (key or "",)),
        )
        if not storage.is_remote:  # it would take more requests
            by_name = directions(storage.dimensions, scales, None if axis is None else rows)
            storage = replace(storage, directions=by_name)
    kind = dtype, is_varying, not is_varying and is_plain(dataset)
    return Found(dataset, version, *kind, rules, stored, storage, dataset.shape)
