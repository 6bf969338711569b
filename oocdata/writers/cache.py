"""Cache the elements of a dataset: compute them once, and store them as ``.npy`` files.

The cache of a dataset is a folder named after the fingerprint of its data and functions
(`dataset_fingerprint`), so it can't be mistaken for the cache of another dataset. The arrays are
written in order, and a file of JSON counts the rows that are safely on the disk: a killed process
continues there. The parent folder may also hold cached bytes of stores
(`oocdata.stores.folder`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.cached import Cached
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import Map
from oocdata.datasets.patches import Patches
from oocdata.datasets.spec import ArraySpec, leaves, map_tree, spec_text
from oocdata.datasets.view import View
from oocdata.datasets.zip import enumerated
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.engines.blocked import blocked
from oocdata.engines.dtypes import is_small_float
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError
from oocdata.formats.npy import open_npy
from oocdata.index import as_path
from oocdata.memory import cache_share
from oocdata.writers.disk import write_errors, write_json
from oocdata.writers.flat import open_npy_storage
from oocdata.writers.target import Target

__all__ = ["WrittenCache", "cache", "written_caches"]

_STATE = "cache.json"
"""Name of the file that says what a cache holds."""

_BATCH_BYTES = 4 << 20
"""Bytes of elements computed at a time."""

_SAVED_BYTES = 256 << 20
"""Bytes written between two saves of the progress."""


def cache(dataset: Dataset, folder: str | os.PathLike[str] | None, workers: int) -> Cached:
    """Return a dataset whose elements are read from cached arrays; see `oocdata.Dataset.cache`."""
    _check(dataset)
    specs, count = list(leaves(dataset.spec)), len(dataset)
    if folder is None:
        nbytes = sum(count * leaf.nbytes for leaf in specs)
        if nbytes > cache_share():
            raise ArgumentError(
                f"`folder` must be given for elements that memory does not hold; they take "
                f"{nbytes:,} bytes, and {cache_share():,} are available (half of ooc.set_memory)."
            )
        arrays = [np.empty((count, *_shape(leaf)), leaf.dtype) for leaf in specs]
        for start, batch in _batches(dataset, 0, workers):
            for array, part in zip(arrays, leaves(batch), strict=True):
                array[start : start + len(part)] = part
        views = [_in_memory(array) for array in arrays]
    else:
        folder = as_path("folder", folder)
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise ArgumentError(f"`folder` must be a folder; '{folder}' is a file.")
        own_folder = os.path.join(folder, _name(dataset))
        paths = [os.path.join(own_folder, f"{number}.npy") for number in range(len(specs))]
        if _saved_rows(own_folder, paths) != len(dataset):
            _fill(dataset, own_folder, paths, specs, workers)
        views = [View.of(_open_array(*pair)) for pair in zip(paths, specs, strict=True)]
    remaining = iter(views)
    return Cached(enumerated(dataset), map_tree(lambda _: next(remaining), dataset.spec))


def _check(dataset: Dataset) -> None:
    """Raise unless elements are dense arrays that do not change from epoch to epoch."""
    if dataset.mixture is not None:
        raise ArgumentError(
            f"`cache` must be called on a dataset that is no mixture; got {dataset!r}. Cache its "
            "members, and mix those."
        )
    if any(leaf.form != "dense" or leaf.dtype.hasobject for leaf in leaves(dataset.spec)):
        hint = "Make such arrays of them in `.map` first."
        if dataset.is_multi_array:  # which no function gets
            hint = (
                "`.pad(length)`, or `parse(…, pad=length)`, makes them of ragged rows; cache "
                "sparse rows before `.sparse()`."
            )
        raise ArgumentError(
            "`cache` must be called on elements that are arrays of one shape; got "
            f"{spec_text(dataset.spec)}. {hint}"
        )
    parts = [dataset]
    for part in parts:
        random = isinstance(part, Map) and part.rng
        if random or (isinstance(part, Patches) and not part.step):
            raise ArgumentError(
                "`cache` must come before functions and patches that draw at random, because they "
                f"would be the same in every epoch; got {part!r}. Write .cache(…) first, and then "
                "the random function or patches."
            )
        parts += part._members


def _name(dataset: Dataset) -> str:
    """Return the name of the dataset's folder: a digest of its length and fingerprint."""
    text = f"{len(dataset)} {dataset_fingerprint(dataset, exact=True)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _shape(leaf: ArraySpec) -> tuple[int, ...]:
    return tuple(length or 0 for length in leaf.shape)


def _open_array(path: str, leaf: ArraySpec) -> Source:
    source = open_npy(path, dtype=leaf.dtype if is_small_float(leaf.dtype) else None)
    return blocked(source, (0,))


def _in_memory(array: NDArray[Any]) -> View:
    array.flags.writeable = False
    storage = Storage(
        "cache in memory", layout="contiguous", codec="none", table_bytes=array.nbytes,
        reading="each box copied into the batch",
    )  # fmt: skip
    return View.of(MemoryArray(array, storage))


def _batches(dataset: Dataset, start: int, workers: int) -> Iterator[tuple[int, Any]]:
    """Yield (position of its first element, batch) for the elements from `start` on."""
    remaining = dataset[start:] if start else dataset
    if not len(remaining):
        return
    element_bytes = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    size = max(1, min(len(remaining), _BATCH_BYTES // max(1, element_bytes)))
    for batch in remaining.batches(size, workers=workers).epoch(0):
        yield start, batch
        start += len(next(leaves(batch)))


def _state(folder: str) -> dict[str, Any]:
    """Return the repr of the dataset of a cache, the rows on the disk, and the rows of all."""
    state = {"of": "elements of a dataset", "rows": -1, "elements": 0}
    with suppress(FileNotFoundError), open(os.path.join(folder, _STATE), encoding="utf-8") as file:
        state = json.load(file)
    return state


def _saved_rows(folder: str, paths: list[str]) -> int:
    """Return the number of rows that a cache holds; -1 if an array or the number is missing."""
    return int(_state(folder)["rows"]) if all(map(os.path.exists, paths)) else -1


def _fill(
    dataset: Dataset, folder: str, paths: list[str], specs: list[ArraySpec], workers: int
) -> None:
    """Write the arrays of a cache, continuing after the rows that an earlier process saved."""
    with _locked(folder):
        done, count = _saved_rows(folder, paths), len(dataset)
        if done == count:
            return  # the process that held the lock before has written it

        def save(rows: int) -> None:
            state = {"of": repr(dataset), "rows": rows, "elements": count}
            write_json(os.path.join(folder, _STATE), state)

        done = max(0, done)
        save(done)  # before there are arrays: the number on the disk may be of deleted ones
        targets = [
            Target(format="npy", key=None, shape=(count, *_shape(leaf)), dtype=leaf.dtype)
            for leaf in specs
        ]
        arrays = [
            open_npy_storage(target, path, resume=done > 0)
            for target, path in zip(targets, paths, strict=True)
        ]
        try:
            unsaved = 0
            for start, batch in _batches(dataset, done, workers):
                stop = start + len(next(leaves(batch)))
                for array, part in zip(arrays, leaves(batch), strict=True):
                    array.write(start, part)
                    unsaved += part.nbytes
                if unsaved >= _SAVED_BYTES:
                    for array in arrays:
                        array.save()
                    save(stop)
                    unsaved = 0
            for array in arrays:
                array.close(count)
            save(count)
        finally:
            for array in arrays:
                array.abandon()


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock the folder of a cache against other writers; the lock ends with the process."""
    lock = os.path.join(folder, "lock")
    while True:
        with write_errors(folder):
            os.makedirs(folder, exist_ok=True)
        with open(lock, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Otherwise the process that held the lock has deleted the cache.
            if os.path.exists(lock) and os.path.samestat(os.stat(lock), os.fstat(file.fileno())):
                yield
                return


_FILE_NAMES = re.compile(rf"(lock|{re.escape(_STATE)}(\.new)?|\d+\.npy)")
"""Names of the files in the folder of a cache."""


@dataclass(frozen=True, slots=True)
class WrittenCache:
    """The cache of a dataset in a folder."""

    path: str  #: its folder
    made_of: str  #: the repr of the dataset
    whole: bool  #: whether it holds every element
    nbytes: int  #: on the disk
    #: time of the last write or read, as far as the system records it, in seconds since the epoch
    used: float

    def delete(self) -> bool:
        """Delete the cache, and return whether it was; a cache that is being written is kept."""
        lock = os.path.join(self.path, "lock")
        with suppress(FileNotFoundError), open(lock, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            # First the number of rows, in case this process is killed.
            names = sorted(set(os.listdir(self.path)) - {"lock"}, key=lambda name: name != _STATE)
            for name in [*names, "lock"]:
                os.unlink(os.path.join(self.path, name))
            os.rmdir(self.path)
        return True


def written_caches(folder: str | os.PathLike[str]) -> list[WrittenCache]:
    """Return the caches of datasets in a folder, the most recently used first.

    Folders that contain any other file are skipped.

    Examples
    --------
    >>> import tempfile, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ooc.open(np.arange(6.0)).map(np.sqrt).cache(folder)
    ...     (found,) = written_caches(folder)
    ...     found.made_of, found.delete(), written_caches(folder)
    ('<Map of sqrt over <View: 6 rows of () float64>>', True, [])
    """
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if not re.fullmatch(r"[0-9a-f]{32}", name) or not os.path.isdir(path):
            continue
        with suppress(FileNotFoundError):
            names = os.listdir(path)
            if "lock" not in names or not all(map(_FILE_NAMES.fullmatch, names)):
                continue
            state = _state(path)
            status = {name: os.stat(os.path.join(path, name)) for name in names}
            found.append(
                WrittenCache(
                    path,
                    state["of"],
                    state["rows"] == state["elements"],
                    sum(each.st_blocks * 512 for each in status.values()),
                    max(
                        max(each.st_mtime, each.st_atime)
                        for name, each in status.items()
                        if name == "lock" or name.endswith(".npy")  # this reads the other files
                    ),
                )
            )
    return sorted(found, key=lambda written: (-written.used, written.path))
