"""What a file lists: names, and of an array or a group that is asked for its metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oocdata.datasets.open import open as open_view
from oocdata.errors import SourceError
from oocdata.formats.opening import format_of, list_datasets
from oocdata.formats.patterns import natural, tree_of

__all__ = ["Array", "Listing", "expect", "listing_of"]


class Array(NamedTuple):
    """The metadata of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dimensions: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one place along the first axis."""
        return prod(self.shape[1:]) * self.dtype.itemsize


Looks: TypeAlias = tuple[
    Callable[[str], list[str]],
    Callable[[str], Array | None],
    Callable[[str], dict[str, Any]],
]
"""How names, arrays and attributes are looked up in a file of one format, by their names: those
right below a group in natural order, none where there is no such group; None for what is no array;
empty for what is neither."""


def expect(found: object) -> None:
    """Raise a LookupError unless what a layout takes for granted is so."""
    if not found:
        raise LookupError("another layout")


@dataclass(frozen=True)
class Listing:
    """What the first of several files lists; nothing is opened that is not asked for.

    Attributes
    ----------
    target : str
        What `oocdata.open` is given, as Python: a path, a glob or a list.
    files : int
        How many there are.
    path : str
        The first of them, which is looked at.
    kind : str
        ``"npy"``, ``"npz"``, ``"hdf5"`` or ``"zarr"``.
    below, attributes : callable
        See `Looks`.
    """

    target: str
    files: int
    path: str
    kind: str
    below: Callable[[str], list[str]]
    found: Callable[[str], Array | None]
    attributes: Callable[[str], dict[str, Any]]

    def root(self, *kinds: str, several: bool = False) -> list[str]:
        """Return the names below the root; LookupError for other kinds, or for several files."""
        expect(self.kind in kinds and (several or self.files == 1))
        return self.below("")

    @property
    def several(self) -> str:
        """``"12 files, the first of "``, or nothing for one file."""
        return f"{self.files:,} files, the first of " if self.files > 1 else ""

    def array(self, name: str) -> Array:
        """Return the metadata of an array; LookupError where there is none."""
        found = self.found(name)
        expect(found)
        assert found is not None
        return found

    def arrays(self, group: str, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the arrays right below a group, of some names or of all."""
        some = self.below(group) if names is None else names
        found = {name: self.found(f"{group}/{name}".lstrip("/")) for name in some}
        return {name: array for name, array in found.items() if array is not None}


@contextmanager
def listing_of(target: str, paths: Sequence[str]) -> Iterator[Listing]:
    """Open the first of several files, named by `target`, for as long as it is looked at."""
    path, count = paths[0], len(paths)
    kind = format_of(path)
    if kind == "hdf5":
        from oocdata.formats.hdf5.file import open_file, readable

        with open_file(path) as file, readable(path):
            yield Listing(target, count, path, kind, *_of_hdf5(file))
    elif kind == "zarr":
        yield Listing(target, count, path, kind, *_of_zarr(path))
    else:
        yield Listing(target, count, path, kind, *_of_numpy(path))


def _of_hdf5(file: Any) -> Looks:
    from oocdata.formats.hdf5.file import hdf5_library
    from oocdata.formats.hdf5.links import Names

    names, library = Names(file), hdf5_library()

    def opened(name: str) -> Any:
        return names.opened(f"/{name}" if name else "")

    def below(group: str) -> list[str]:
        return sorted(names.below(f"/{group}" if group else ""), key=natural)

    def array(name: str) -> Array | None:
        found = opened(name)
        if not isinstance(found, library.h5d.DatasetID):
            return None
        with suppress(TypeError):  # a type that NumPy has not
            return Array(tuple(found.shape or ()), found.dtype)
        return None

    def attributes(name: str) -> dict[str, Any]:
        found = opened(name)
        if found is None:
            return {}
        is_array = isinstance(found, library.h5d.DatasetID)
        held = (library.Dataset if is_array else library.Group)(found).attrs
        kept = {}
        for one in held:
            with suppress(OSError, TypeError, UnicodeError):  # one that h5py can't read
                kept[one] = held[one]
        return kept

    return below, array, attributes


def _of_zarr(path: str) -> Looks:
    from oocdata.formats.zarr.hierarchy import find_array, group_attributes
    from oocdata.formats.zarr.store import store_of

    store, tree = store_of(path), dict[str, list[str]]()

    def below(group: str) -> list[str]:
        if not tree:
            tree.update(tree_of(name or "" for name in list_datasets(path)))
        return sorted(tree.get(f"/{group}" if group else "", []), key=natural)

    def metadata(name: str) -> Any:
        with suppress(SourceError):
            return find_array(store, name)[1]
        return None

    def array(name: str) -> Array | None:
        found = metadata(name)
        return found and Array(tuple(found.shape), found.dtype, found.dimensions)

    def attributes(name: str) -> dict[str, Any]:
        found = group_attributes(store, name)
        if found is None and (one := metadata(name)) is not None:
            found = dict(one.annotations.attributes)
        return found or {}

    return below, array, attributes


def _of_numpy(path: str) -> Looks:
    names = [name or "" for name in list_datasets(path)]

    def array(name: str) -> Array | None:
        with suppress(SourceError):
            source = open_view(path, name or None).source
            return Array(tuple(source.shape), source.dtype)
        return None

    return lambda group: [] if group else names, array, lambda name: {}
