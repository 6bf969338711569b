"""Cache the elements of a dataset: compute them once, and store them as ``.npy`` files.

The cache of a dataset is a folder named after the fingerprint of its data and functions
(`dataset_fingerprint`), so it can't be mistaken for the cache of another dataset. It is written and
resumed as a file of `oocdata.create` and `convert` is (`oocdata.writers.output`), and gets its name
when all arrays are complete. The parent folder may also hold cached bytes of stores
(`oocdata.stores.folder`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from glob import escape, glob
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.map import Map
from oocdata.datasets.patches import Patches
from oocdata.datasets.spec import ArraySpec, leaves, map_tree
from oocdata.datasets.view import View
from oocdata.datasets.zip import Cached, enumerated
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.engines.atomic import write_errors
from oocdata.engines.blocked import blocked
from oocdata.engines.dtypes import is_small_float
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.opening import open_source
from oocdata.index import as_path
from oocdata.memory import cache_share
from oocdata.writers.disk import PARTIAL, Lock, write_json
from oocdata.writers.output import Output
from oocdata.writers.placement import Placement
from oocdata.writers.storage import NpyStorage
from oocdata.writers.target import Target

_ABOUT, _FILE = "cache.json", "{}.npy"
"""Names of the file that says what a cache was made of, and of its arrays."""

_BATCH_BYTES = 4 << 20
"""Bytes of elements computed at a time."""


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
        path = os.path.join(os.path.abspath(folder), _name(dataset))
        if not os.path.exists(path):
            _fill(dataset, path, specs, workers)
        views = [View.of(_open_array(path, *pair, count)) for pair in enumerate(specs)]
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
        raise ArgumentError(
            "`cache` must be called on elements that are arrays of one shape; got "
            f"{dataset.spec}. Make such arrays of them first, in `.map`; of ragged "
            "rows with `.pad(length)`, or `parse(…, pad=length)`; cache sparse rows before "
            "`.sparse()`."
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


def _open_array(folder: str, number: int, leaf: ArraySpec, count: int) -> Source:
    path = os.path.join(folder, _FILE.format(number))
    source = open_source(path, dtype=leaf.dtype if is_small_float(leaf.dtype) else None)
    written = (count, *_shape(leaf))
    if (source.shape, source.dtype) != (written, leaf.dtype):
        raise SourceError(
            f"the file must hold the cached array, {written} {leaf.dtype}; it holds "
            f"{source.shape} {source.dtype}. Delete its folder, and it will be made again.",
            path=path,
        )
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


def _fill(dataset: Dataset, path: str, specs: list[ArraySpec], workers: int) -> None:
    """Write a cache, after the elements that an earlier process has saved."""
    count, placement = len(dataset), _placement(path)
    targets = [
        Target(format="npy", key=None, shape=(count, *_shape(leaf)), dtype=leaf.dtype)
        for leaf in specs
    ]

    def open_storages(done: int) -> Iterator[NpyStorage]:
        os.makedirs(placement.result, exist_ok=True)
        for number, target in enumerate(targets):
            array_path = os.path.join(placement.result, _FILE.format(number))
            yield NpyStorage(target, array_path, done=done)

    with write_errors(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        about = {"cache": os.path.basename(path)}
        output = Output(open_storages, placement, about, waits=True)
    with closing(output):
        if os.path.exists(path):  # the process that held the lock before has placed it
            return
        write_json(os.path.join(placement.result, _ABOUT), {"of": repr(dataset)})
        for start, batch in _batches(dataset, output.done, workers):
            output.write(start, *leaves(batch))
        output.finish(count)


def _placement(path: str) -> Placement:
    return Placement(path, None, "npy", overwrite=False)


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
        placement = _placement(self.path)
        try:
            lock = Lock(placement)
        except SourceError:
            return False
        with closing(lock):
            placement.begin()
            with suppress(FileNotFoundError):
                os.rename(self.path, placement.result)  # no incomplete cache has the name
            placement.remove()
        return True


def written_caches(folder: str | os.PathLike[str]) -> list[WrittenCache]:
    """Return the caches of datasets in a folder, the most recently used first."""
    found = []
    own = os.path.join(escape(os.path.abspath(folder)), "[0-9a-f]" * 32)
    for below in ("", f"{PARTIAL}/result.npy"):
        for about in glob(f"{own}{below}/{_ABOUT}"):
            place, made_of = os.path.dirname(about), "elements of a dataset"
            with suppress(FileNotFoundError):
                with (
                    suppress(OSError, ValueError, TypeError, KeyError),  # another user's, damaged
                    open(about, encoding="utf-8") as file,
                ):
                    made_of = str(json.load(file)["of"])
                each = [os.stat(os.path.join(place, name)) for name in os.listdir(place)]
                nbytes = sum(one.st_blocks * 512 for one in each)
                used = max(max(one.st_mtime, one.st_atime) for one in each)
                path = place.removesuffix(below)
                found.append(WrittenCache(path, made_of, not below, nbytes, used))
    return sorted(found, key=lambda written: (-written.used, written.path))
