"""What a layout is: how it is written, our lines, and the loop that its maker trains with.

The maker's loop is a list of places and a function that reads the element at one place. Given files
it is what is measured; given arrays in memory it is the oracle of what every way must deliver, and
what a maker does who loads everything first.
"""

from __future__ import annotations

import functools
import glob
import json
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Elements", "Layout", "LayoutCase", "fingerprints", "keys_read", "paths", "prepare"]

Arrays = tuple[NDArray[Any], ...]
Opener = Callable[[str], Any]
"""Gets a path; what it returns gives, in a ``with``, the arrays of the file by their keys."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout, and the ways to train from it.

    Attributes
    ----------
    name, title : str
    source : str
        Where the maker's loop is found: repository, file, function.
    write : callable
        Gets a folder and the bytes wanted; writes the files and returns the path or glob to open.
    ours : callable
        Gets that; returns our dataset.
    places : callable
        Gets the same path; returns a sequence of tuples, what `element` needs for each element.
    element : callable
        Gets an `Opener`, the path and a place; returns the arrays of an element.
    batch : int
    workers : int
        Processes that the maker's loader reads with, two at most here.
    reopens : bool
        Whether the maker opens the file anew for each element.
    loads : bool
        Whether the maker loads everything into memory first.
    whole_batches : bool
        Whether `element` gets arrays of places and reads a batch at once.
    maker : bool
        Whether the maker's loop is compared with.
    shuffle : bool or str
    weights : float, optional
        Draw by random weights between this and one more.
    beside : callable, optional
        As `ours`: another dataset of as much, shuffled plainly, to compare with.
    once : bool
        Whether each element comes once an epoch.
    file : str
        The layout whose files it reads; its own by default.
    """

    name: str
    title: str
    source: str
    write: Callable[[Path, int], str]
    ours: Callable[[str], Any]
    places: Callable[[str], Sequence[Any]]
    element: Callable[..., Arrays]
    batch: int
    workers: int = 0
    reopens: bool = False
    loads: bool = False
    whole_batches: bool = False
    maker: bool = True
    shuffle: bool | str = True
    weights: float | None = None
    beside: Callable[[str], Any] | None = None
    once: bool = True
    file: str = ""


@dataclass(frozen=True, slots=True)
class LayoutCase:
    """A layout's files as a case that the rounds measure: see `benchmarks.case.Case`."""

    name: str
    file_name: str
    target: str
    batch: int
    elements: int
    element_bytes: int
    stamped: bool
    layout: bool = True

    cache: ClassVar[str] = "warm"
    format: ClassVar[str] = ""
    pairs: ClassVar[bool] = False

    @property
    def part_rows(self) -> int:
        """Elements in one of the parts that count as labels when mixing is measured."""
        return max(1, -(-self.elements // 64))

    @property
    def expected(self) -> Path:
        """The fingerprints of all elements, in the order of the maker's places."""
        return Path(f"{self.target.split('*')[0].rstrip('/')}.{self.name}.expected.npy")

    def look(self, arrays: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], int]:
        """Return which element each of a batch is, -1 where its bytes are those of none."""
        expected, order = _expected(self.expected)
        found = fingerprints(arrays)
        at = np.searchsorted(expected, found).clip(max=len(expected) - 1)
        rows = np.where(expected[at] == found, order[at], -1)
        return rows, int((rows < 0).sum())


@functools.cache
def _expected(path: Path) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    found = np.load(path)
    order = found.argsort(kind="stable")
    return found[order], order


def fingerprints(arrays: Sequence[NDArray[Any]]) -> NDArray[np.uint64]:
    """Return a number for each element of a batch, made of all bytes of all its arrays."""
    total = np.zeros(len(arrays[0]), np.uint64)
    for array in arrays:
        octets = np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)
        rest = -octets.shape[1] % 8
        words = np.pad(octets, ((0, 0), (0, rest))) if rest else octets
        words = words.view(np.uint64)
        total = total * np.uint64(0x9E3779B97F4A7C15) + words @ _factors(words.shape[1])
    return total


@functools.lru_cache(maxsize=4)
def _factors(count: int) -> NDArray[np.uint64]:
    return np.random.default_rng(0).integers(0, 2**63, count, np.uint64) * np.uint64(2) + 1


@functools.cache
def paths(target: str) -> list[str]:
    """Return the files of a glob in natural order."""
    found = glob.glob(target) if "*" in target else [target]
    return sorted(found, key=lambda path: [int(x) for x in re.findall(r"\d+", Path(path).name)])


def _opened(path: str) -> Any:
    if ".zarr" in path:
        return nullcontext(_group(path))
    import h5py

    return h5py.File(path, "r")


@functools.cache
def _group(path: str) -> Any:
    import zarr

    return zarr.open_group(path, mode="r")


@functools.lru_cache(maxsize=512)
def _held(path: str) -> Any:
    return nullcontext(_opened(path).__enter__())


class _Memory:
    """The arrays of a file, each loaded whole when it is first asked for."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.arrays: dict[str, NDArray[Any]] = {}

    def __getitem__(self, key: str) -> NDArray[Any]:
        if key not in self.arrays:
            with _opened(self.path) as root:
                self.arrays[key] = root[key][...]
        return self.arrays[key]


@functools.cache
def in_memory(path: str) -> Any:
    """Open a file as arrays in memory."""
    return nullcontext(_Memory(path))


class Elements:
    """The maker's dataset, as PyTorch wants it: a length and elements by number.

    With `memory`, everything is loaded before the first element, as some makers do.
    """

    def __init__(self, layout: Layout, target: str, *, memory: bool = False) -> None:
        self.layout, self.target = layout, target
        self.places = layout.places(target)
        self.opener = _opened if layout.reopens else _held
        self.loaded: Any = None
        if memory and layout.whole_batches:
            self.loaded = layout.element(in_memory, target, self.places)
        elif memory:
            self.loaded = [layout.element(in_memory, target, *place) for place in self.places]
            in_memory.cache_clear()

    def __reduce__(self) -> Any:
        from benchmarks.layouts.table import LAYOUTS  # processes of a loader start with the name

        assert LAYOUTS[self.layout.name] is self.layout
        return _again, (self.layout.name, self.target, self.loaded is not None)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, position: int) -> Arrays:
        if self.loaded is not None:
            return tuple(self.loaded[position])
        return self.layout.element(self.opener, self.target, *self.places[position])

    def batch(self, positions: NDArray[Any]) -> Arrays:
        """Return a whole batch, where the maker reads batches."""
        if self.loaded is not None:
            return tuple(array[positions] for array in self.loaded)
        # h5py asks for indices that increase.
        return self.layout.element(self.opener, self.target, self.places[np.sort(positions)])


class _Noted:
    """A file that notes which of its arrays are asked for."""

    def __init__(self, path: str, keys: set[str]) -> None:
        with _held(path) as root:
            self.root, self.keys = root, keys

    def __getitem__(self, key: str) -> Any:
        self.keys.add(key)
        return self.root[key]


def keys_read(layout: Layout, target: str) -> set[str]:
    """Return the keys of the arrays that an element is made of."""
    keys: set[str] = set()

    def noted(path: str) -> Any:
        return nullcontext(_Noted(path, keys))

    first = layout.places(target)[:1]
    layout.element(noted, target, *([first] if layout.whole_batches else first[0]))
    return keys


def _again(name: str, target: str, memory: bool) -> Elements:
    from benchmarks.layouts.table import LAYOUTS

    return Elements(LAYOUTS[name], target, memory=memory)


def prepare(layout: Layout, folder: Path, nbytes: int) -> LayoutCase:
    """Write a layout's files and the fingerprints of its elements, unless they are there."""
    own = folder / (layout.file or layout.name)
    noted = own / "written.json"
    if not noted.exists():
        own.mkdir(parents=True, exist_ok=True)
        noted.write_text(json.dumps(layout.write(own, nbytes)))
    target = json.loads(noted.read_text())
    told = own / f"{layout.name}.case.json"
    if not told.exists():
        told.write_text(json.dumps(_look_once(layout, target)))
    elements, element_bytes = json.loads(told.read_text())
    return LayoutCase(
        layout.name, own.name, target, layout.batch, elements, element_bytes, layout.once
    )


def _look_once(layout: Layout, target: str) -> tuple[int, int]:
    places = layout.places(target)
    found = []
    element_bytes = 0
    step = 50_000 if layout.whole_batches else 16
    for first in range(0, len(places), step):
        some = places[first : first + step]
        if layout.whole_batches:
            batch = layout.element(in_memory, target, some)
        else:
            each = [layout.element(in_memory, target, *place) for place in some]
            batch = tuple(np.stack(arrays) for arrays in zip(*each, strict=True))
        element_bytes = sum(array.nbytes for array in batch) // len(some)
        found.append(fingerprints(batch))
    in_memory.cache_clear()
    case = LayoutCase(layout.name, "", target, layout.batch, len(places), element_bytes, True)
    np.save(case.expected, np.concatenate(found))
    return len(places), element_bytes
