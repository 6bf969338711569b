"""What the descriptions of layouts share: their table, their writers, how long their files are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.layouts.layout import Layout, paths

__all__ = ["LAYOUTS", "Place", "add", "each", "edge", "lengths", "rows", "shape", "written"]

LAYOUTS: dict[str, Layout] = {}
"""All layouts, by name."""

Place = tuple[int, ...]

_SMALL = 10_000_000


def add(name: str, *args: Any, **options: Any) -> None:
    """Enter a layout into the table."""
    LAYOUTS[name] = Layout(name, *args, **options)


def written(
    name: str, bytes_each: int, tiny: dict[str, Any] | None = None, **options: Any
) -> Callable[[Path, int], str]:
    """Return a writer of so many of what the layout has many of that they fill the bytes.

    `tiny` are the options, few and small, of files of less than 10 MB.
    """

    def write(folder: Path, nbytes: int) -> str:
        from tests import layout_files

        small = nbytes < _SMALL
        given = (tiny or {}) if small else options
        scale = 1 if small else nbytes // bytes_each
        target: str = getattr(layout_files, f"write_{name}")(folder, scale, **given)
        return target

    return write


@contextmanager
def _group(path: str) -> Iterator[Any]:
    if ".zarr" in path:
        import zarr

        yield zarr.open_group(path, mode="r")
    else:
        with h5py.File(path, "r") as file:
            yield file


@functools.cache
def shape(target: str, key: str) -> tuple[int, ...]:
    """Return the shape of an array in the first of the files."""
    with _group(paths(target)[0]) as group:
        return tuple(group[key].shape)


def lengths(target: str, key: str) -> list[int]:
    """Return the rows of an array in each of the files."""
    found = []
    for path in paths(target):
        with _group(path) as group:
            found.append(int(group[key].shape[0]))
    return found


def each(counts: list[int], lost: int = 0) -> list[Place]:
    """Return (part, row) for all rows of all parts but the last ones of each."""
    return [(part, row) for part, count in enumerate(counts) for row in range(count - lost)]


def rows(key: str, lost: int = 0) -> Callable[[str], list[Place]]:
    """Return a function that lists the rows of all files together, but the last ones."""
    return lambda target: [(row,) for row in range(sum(lengths(target, key)) - lost)]


def edge(array: np.ndarray, length: int) -> np.ndarray:
    """Repeat the last row until there are so many."""
    return np.pad(array, [(0, length - len(array))] + [(0, 0)] * (array.ndim - 1), "edge")
