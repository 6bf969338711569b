"""Cache the elements of a dataset: compute them once, and store them as ``.npy`` files.

The cache of a dataset is a folder named after the fingerprint of its data and functions
(`dataset_fingerprint`), so it can't be mistaken for the cache of another dataset. Each array is
written and resumed as by `oocdata.create` and `convert` (`oocdata.writers.output`). The parent
folder may also hold cached bytes of stores (`oocdata.stores.folder`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from glob import iglob
from hashlib import blake2b
from math import inf
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
from oocdata.engines.blocked import blocked
from oocdata.engines.dtypes import is_small_float
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source, Storage
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.npy import open_npy
from oocdata.index import as_path
from oocdata.memory import cache_share
from oocdata.writers.disk import PARTIAL, Lock, write_errors, write_json
from oocdata.writers.output import Output
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target

_ABOUT = "cache.json"
"""Name of the file that says what a cache was made of."""

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
        own_folder = os.path.join(folder, _name(dataset))
        paths = [os.path.join(own_folder, f"{number}.npy") for number in range(len(specs))]
        while not all(map(os.path.exists, paths)):  # again if it was deleted meanwhile
            _fill(dataset, own_folder, paths, specs, workers)
        views = [View.of(_open_array(*pair, count)) for pair in zip(paths, specs, strict=True)]
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


def _open_array(path: str, leaf: ArraySpec, count: int) -> Source:
    source = open_npy(path, dtype=leaf.dtype if is_small_float(leaf.dtype) else None)
    written = (count, *_shape(leaf))
    if (source.shape, source.dtype) != (written, leaf.dtype):
        raise SourceError(
            f"the file must hold the cached array, {written} {leaf.dtype}; it holds "
            f"{source.shape} {source.dtype}. Delete the file, and it will be made again.",
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


def _fill(
    dataset: Dataset, folder: str, paths: list[str], specs: list[ArraySpec], workers: int
) -> None:
    """Write the missing arrays of a cache, continuing after the rows that are on the disk."""
    count, outputs = len(dataset), dict[int, Output]()
    about = {"cache": os.path.basename(folder)}
    with write_errors(folder):
        os.makedirs(folder, exist_ok=True)
    with ExitStack() as stack:
        for number, (path, leaf) in enumerate(zip(paths, specs, strict=True)):
            if os.path.exists(path):
                continue
            shape = (count, *_shape(leaf))
            target = Target(format="npy", key=None, shape=shape, dtype=leaf.dtype)
            output = Output(target, _placement(path), about, waits=True)
            stack.enter_context(closing(output))
            if not os.path.exists(path):  # else the process that held the lock before has placed it
                outputs[number] = output
        node = {"of": repr(dataset), "arrays": len(paths)}
        write_json(os.path.join(folder, _ABOUT), node)
        first = min((output.done for output in outputs.values()), default=count)
        for start, batch in _batches(dataset, first, workers):
            parts = list(leaves(batch))
            stop = start + len(parts[0])
            for number, output in outputs.items():
                output.write(start, parts[number])
            # A small array is rarely saved by itself, but has to be continued at the same row.
            if any(output.done == stop for output in outputs.values()):
                for output in outputs.values():
                    output.save(stop)
        for output in outputs.values():
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
        with suppress(FileNotFoundError), ExitStack() as stack:
            names = {name.removesuffix(PARTIAL) for name in os.listdir(self.path)}
            arrays = [_placement(os.path.join(self.path, name)) for name in names - {_ABOUT}]
            try:
                for array in arrays:
                    stack.enter_context(closing(Lock(array)))
            except SourceError:
                return False
            for array in arrays:
                with suppress(FileNotFoundError):
                    os.unlink(array.path)
                array.remove()
            os.unlink(os.path.join(self.path, _ABOUT))  # last: it lists the cache
            with suppress(OSError):  # another process begins it anew
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
    for about in iglob(f"{'[0-9a-f]' * 32}/{_ABOUT}", root_dir=folder):
        path = os.path.join(folder, os.path.dirname(about))
        with suppress(FileNotFoundError):
            names = set(os.listdir(path)) - {_ABOUT}
            if not all(map(_ARRAY.fullmatch, names)):
                continue
            node: dict[str, Any] = {"of": "elements of a dataset", "arrays": inf}
            with (
                open(os.path.join(folder, about), encoding="utf-8") as file,
                suppress(ValueError, TypeError),  # damaged
            ):
                node |= json.load(file)
            files = [os.path.join(at, name) for at, _, each in os.walk(path) for name in each]
            status = {file: os.stat(file) for file in files}
            arrays = [each for file, each in status.items() if file.endswith(".npy")]
            found.append(
                WrittenCache(
                    path,
                    node["of"],
                    sum(name.endswith(".npy") for name in names) == node["arrays"],
                    sum(each.st_blocks * 512 for each in status.values()),
                    max((max(each.st_mtime, each.st_atime) for each in arrays), default=0.0),
                )
            )
    return sorted(found, key=lambda written: (-written.used, written.path))


_ARRAY = re.compile(rf"\d+\.npy({re.escape(PARTIAL)})?|{re.escape(_ABOUT)}\.new")
"""Name of an array, of the folder in which it is made, or of a file that a killed process left."""
