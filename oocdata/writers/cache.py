"""`Dataset.cache`: elements are read and computed once, and written to arrays, ``.npy`` each.

A cache is a folder named after what the elements are made of and by (`dataset_fingerprint`), so one
of other data or of another function is never taken for it. Its arrays are written in order, and a
note says how many rows are on the disk: whoever is killed goes on there. Beside such folders, a
cache folder may hold what was fetched of objects (`oocdata.stores.folder`).
"""

from __future__ import annotations

import fcntl
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
from oocdata.engines.dtypes import is_small_float
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError
from oocdata.formats.npy import open_npy
from oocdata.index import as_path
from oocdata.memory import cache_share
from oocdata.writers.disk import writable, write_text
from oocdata.writers.flat import open_npy_storage
from oocdata.writers.target import Target

__all__ = ["WrittenCache", "cache", "written_caches"]

_BATCH_BYTES = 4 << 20
"""Read and computed at a time."""

_SAVED_BYTES = 256 << 20
"""After so many it is noted how far the arrays are on the disk."""


def cache(dataset: Dataset, folder: str | os.PathLike[str] | None, workers: int) -> Cached:
    """Return the dataset with its elements in arrays; see `oocdata.Dataset.cache`."""
    _check(dataset)
    specs, count = list(leaves(dataset.spec)), len(dataset)
    if folder is None:
        nbytes = sum(count * leaf.nbytes for leaf in specs)
        if nbytes > cache_share():
            raise ArgumentError(
                f"`folder` must be given for elements that memory does not hold; they take "
                f"{nbytes:,} bytes, and {cache_share():,} are for what is kept (half of "
                "ooc.set_memory)."
            )
        arrays = [np.empty((count, *_shape(leaf)), leaf.dtype) for leaf in specs]
        for start, batch in _batches(dataset, 0, workers):
            for array, part in zip(arrays, leaves(batch), strict=True):
                array[start : start + len(part)] = part
        views = [_in_memory(array) for array in arrays]
    else:
        place = os.path.join(as_path("folder", folder), _name(dataset))
        paths = [os.path.join(place, f"{number}.npy") for number in range(len(specs))]
        if not os.path.exists(os.path.join(place, "whole")):
            _fill(dataset, place, paths, specs, workers)
        views = [View.of(_opened(*pair)) for pair in zip(paths, specs, strict=True)]
    rest = iter(views)
    return Cached(enumerated(dataset), map_tree(lambda _: next(rest), dataset.spec))


def _check(dataset: Dataset) -> None:
    """Raise if elements are not arrays that are the same whenever they are read."""
    if dataset.shares is not None:
        raise ArgumentError(
            f"`cache` must be called on a dataset that is no mixture; got {dataset!r}. Cache its "
            "members, and mix those."
        )
    if any(leaf.form != "dense" or leaf.dtype.hasobject for leaf in leaves(dataset.spec)):
        hint = "Make such arrays of them in `.map` first."
        if dataset.is_composed:  # which no function gets
            hint = "`.pad(length)` makes them of ragged rows; cache sparse rows before `.sparse()`."
        raise ArgumentError(
            "`cache` must be called on elements that are arrays of one shape; got "
            f"{spec_text(dataset.spec)}. {hint}"
        )
    parts = [dataset]
    for part in parts:
        random = isinstance(part, Map) and part.rng
        if random or (isinstance(part, Patches) and not part.step):
            raise ArgumentError(
                "`cache` must come before what draws at random, which would give the same in every "
                f"epoch; got {part!r}. Write .cache(…) first, and then the random function or "
                "patches."
            )
        parts += part._members


def _name(dataset: Dataset) -> str:
    text = f"{len(dataset)} {dataset_fingerprint(dataset, exact=True)}"
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _shape(leaf: ArraySpec) -> tuple[int, ...]:
    return tuple(length or 0 for length in leaf.shape)


def _opened(path: str, leaf: ArraySpec) -> Source:
    return open_npy(path, dtype=leaf.dtype if is_small_float(leaf.dtype) else None)


def _in_memory(array: NDArray[Any]) -> View:
    array.flags.writeable = False
    storage = Storage(
        "cache in memory", layout="contiguous", codec="none", table_bytes=array.nbytes,
        reading="each box copied into the batch",
    )  # fmt: skip
    return View.of(MemoryArray(array, storage))


def _batches(dataset: Dataset, start: int, workers: int) -> Iterator[tuple[int, Any]]:
    """Yield the elements from one on: where each batch begins, and the batch."""
    rest = dataset[start:] if start else dataset
    if not len(rest):
        return
    each = sum(leaf.nbytes for leaf in leaves(dataset.spec))
    size = max(1, min(len(rest), _BATCH_BYTES // max(1, each)))
    for batch in rest.batches(size, workers=workers).epoch(0):
        yield start, batch
        start += len(next(leaves(batch)))


def _fill(
    dataset: Dataset, place: str, paths: list[str], specs: list[ArraySpec], workers: int
) -> None:
    """Write the arrays of a cache, from where whoever wrote it before came to."""
    with _locked(place):
        if os.path.exists(os.path.join(place, "whole")):
            return  # whoever had the lock has written it
        done, count = 0, len(dataset)
        if all(map(os.path.exists, paths)):
            done = int(_noted(place, "rows") or 0)
        if not done:  # of arrays that are no longer there
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(place, "rows"))
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
            write_text(os.path.join(place, "of"), repr(dataset))
            for start, batch in _batches(dataset, done, workers):
                stop = start + len(next(leaves(batch)))
                for array, target, part in zip(arrays, targets, leaves(batch), strict=True):
                    array.write((slice(start, stop), *(slice(0, n) for n in target.element)), part)
                    unsaved += part.nbytes
                if unsaved >= _SAVED_BYTES:
                    for array in arrays:
                        array.save()
                    write_text(os.path.join(place, "rows"), str(stop))
                    unsaved = 0
            for array in arrays:
                array.close(count)
            write_text(os.path.join(place, "whole"), spec_text(dataset.spec))
        finally:
            for array in arrays:
                array.abandon()


@contextmanager
def _locked(place: str) -> Iterator[None]:
    """Wait until no other process writes the cache; the lock goes with the process."""
    lock = os.path.join(place, "lock")
    while True:
        with writable(place):
            os.makedirs(place, exist_ok=True)
        with open(lock, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Else whoever had it has deleted the cache.
            if os.path.exists(lock) and os.path.samestat(os.stat(lock), os.fstat(file.fileno())):
                yield
                return


def _noted(place: str, name: str) -> str:
    """Return what a note says, which was written whole; nothing where there is none."""
    try:
        with open(os.path.join(place, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


_NAMES = re.compile(r"(lock|((whole|rows|of)(\.new)?)|\d+\.npy)")


@dataclass(frozen=True, slots=True)
class WrittenCache:
    """The cache of a dataset in a folder."""

    path: str  #: the folder of its own
    made_of: str  #: the dataset, as Python shows it
    whole: bool  #: whether it holds every element
    nbytes: int  #: on the disk
    #: when it was written or last read, as far as the system notes that, in seconds since the epoch
    used: float

    def delete(self) -> bool:
        """Delete it; return False where a process writes it."""
        lock = os.path.join(self.path, "lock")
        with suppress(FileNotFoundError), open(lock, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            # First what says that it is whole: killed on the way, it is none.
            names = sorted(set(os.listdir(self.path)) - {"lock"}, key=lambda name: name != "whole")
            for name in [*names, "lock"]:
                os.unlink(os.path.join(self.path, name))
            os.rmdir(self.path)
        return True


def written_caches(folder: str | os.PathLike[str]) -> list[WrittenCache]:
    """Return the caches of datasets in a folder, the most recently used first.

    Folders that hold anything else are none of them.

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
            if "lock" not in names or not all(map(_NAMES.fullmatch, names)):
                continue
            each = {name: os.stat(os.path.join(path, name)) for name in names}
            found.append(
                WrittenCache(
                    path,
                    _noted(path, "of") or "elements of a dataset",
                    "whole" in names,
                    sum(one.st_blocks * 512 for one in each.values()),
                    max(
                        max(one.st_mtime, one.st_atime)
                        for name, one in each.items()
                        if name == "lock" or name.endswith(".npy")  # this looks at the others
                    ),
                )
            )
    return sorted(found, key=lambda one: (-one.used, one.path))
