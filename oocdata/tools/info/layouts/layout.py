"""What a file lists, and what is said of one whose layout is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from oocdata.datasets.open import open as open_view
from oocdata.errors import SourceError
from oocdata.formats.hdf5.file import hdf5_library, open_file, readable
from oocdata.formats.opening import format_of, list_datasets
from oocdata.formats.patterns import natural, tree_of
from oocdata.formats.zarr.hierarchy import find_array, group_attributes
from oocdata.formats.zarr.store import store_of
from oocdata.threads import cached_property

__all__ = [
    "Array", "Layout", "Listing", "Recogniser", "expect", "lines", "listed", "listing_of", "split",
]  # fmt: skip


class Array(NamedTuple):
    """The metadata of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dimensions: tuple[str, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one place along the first axis."""
        return prod(self.shape[1:]) * self.dtype.itemsize


def expect(found: object) -> None:
    """Raise a LookupError unless what a layout takes for granted is so."""
    if not found:
        raise LookupError("another layout")


@dataclass
class Listing:
    """What the first of several files lists; nothing is opened that is not asked for."""

    target: str  # what `oocdata.open` is given, as Python: a path, a glob or a list
    files: int  # how many there are
    path: str  # the first of them, which is looked at
    kind: str  # "npy", "npz", "hdf5" or "zarr"
    file: Any = None  # of HDF5, open

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
        return self.arrays("", [name])[name]

    def arrays(self, group: str, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the arrays right below a group, of some names or of all."""
        some = self.below(group) if names is None else names
        found = {name: self._array(f"{group}/{name}".lstrip("/")) for name in some}
        return {name: array for name, array in found.items() if array is not None}

    @cached_property
    def _tree(self) -> dict[str, list[str]]:
        return tree_of(name or "" for name in list_datasets(self.path))

    @cached_property
    def _inside(self) -> Any:
        """What looks names up: of HDF5 `Names`, of Zarr its store."""
        if self.kind == "zarr":
            return store_of(self.path)
        from oocdata.formats.hdf5.links import Names  # not for other files: h5py is slow

        return Names(self.file)

    def below(self, group: str) -> list[str]:
        """Return the names right below a group in natural order; none where there is none."""
        place = f"/{group}" if group else ""
        is_open = self.kind == "hdf5"
        found = self._inside.below(place) if is_open else self._tree.get(place, [])
        return sorted(found, key=natural)

    def _array(self, name: str) -> Array | None:
        """Return the metadata of an array; None for what is none, or of a dtype NumPy has not."""
        with suppress(SourceError, TypeError):
            if self.kind == "hdf5":
                one = self._inside.opened(f"/{name}" if name else "")
                is_array = isinstance(one, hdf5_library().h5d.DatasetID)
                return Array(tuple(one.shape or ()), one.dtype) if is_array else None
            if self.kind == "zarr":
                one = find_array(self._inside, name)[1]
                return None if one is None else Array(one.shape, one.dtype, one.dimensions)
            source = open_view(self.path, name or None).source
            return Array(tuple(source.shape), source.dtype)
        return None

    def attributes(self, name: str) -> dict[str, Any]:
        """Return the attributes of an array or a group; empty for what is neither."""
        kept: dict[str, Any] = {}
        if self.kind == "zarr":
            kept.update(group_attributes(self._inside, name) or {})
            with suppress(SourceError):
                array = find_array(self._inside, name)[1]
                kept.update({} if array is None else array.annotations.attributes)
        found = self._inside.opened(f"/{name}" if name else "") if self.kind == "hdf5" else None
        if found is not None:
            library = hdf5_library()
            is_array = isinstance(found, library.h5d.DatasetID)
            held = (library.Dataset if is_array else library.Group)(found).attrs
            for one in held:
                with suppress(OSError, TypeError, UnicodeError):  # one that h5py can't read
                    kept[one] = held[one]
        return kept


@contextmanager
def listing_of(target: str, paths: Sequence[str]) -> Iterator[Listing]:
    """Open the first of several files, named by `target`, for as long as it is looked at."""
    listing = Listing(target, len(paths), paths[0], str(format_of(paths[0])))
    if listing.kind != "hdf5":
        yield listing
        return
    with open_file(listing.path) as listing.file, readable(listing.path):
        yield listing


_FEWEST_TO_SPLIT = 10
_WIDTH = 96
"""Of a line of code."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a file: what it is called, how much there is, and code that opens it."""

    name: str  # of the data set, or the format, that lies like this
    summary: str  # "200 demos, 34,112 steps"
    code: tuple[str, ...]  # lines of Python up to the first batch
    # A few arrays that stand for all others, which `oocdata info` describes; the one that most
    # bytes lie in first.
    keys: tuple[str, ...]
    whole: str = ""  # the key, or pattern, of all of the first one; empty for the key itself

    @property
    def sentence(self) -> str:
        """``"robomimic: 200 demos, 34,112 steps"``."""
        return f"{self.name}: {self.summary}"


Recogniser: TypeAlias = Callable[[Listing], Layout]
"""Returns the layout of a file; a file of another one makes it raise, such as a LookupError."""


def lines(text: str, batch: str = "x, y") -> tuple[str, ...]:
    """Return lines of code up to a `batch` of `train`, the dataset that the text ends by naming.

    Examples
    --------
    >>> for line in lines("train = ooc.open('a.npy')", "x"):
    ...     print(line)
    import oocdata as ooc
    train = ooc.open('a.npy')
    loader = train.batches(32, shuffle=True, seed=7)
    x = loader.batch(0)
    # model.fit(loader.to_tf(), epochs=10)
    """
    numpy = ["import numpy as np"] if "np." in text else []
    return (
        *numpy,
        "import oocdata as ooc",
        *text.strip("\n").split("\n"),
        "loader = train.batches(32, shuffle=True, seed=7)",
        f"{batch} = loader.batch(0)",
        "# model.fit(loader.to_tf(), epochs=10)",
    )


def split(name: str, count: int, more: str = "") -> str:
    """Return the line that splits a dataset of so many things; of few, all are for training.

    Examples
    --------
    >>> split("pairs", 100), split("pairs", 3)
    ('train, val = pairs.split(0.9, 0.1)', 'train = pairs')
    """
    if count < _FEWEST_TO_SPLIT:
        return f"train = {name}"
    return f"train, val = {name}.split(0.9, 0.1{more})"


def listed(name: str, values: Iterable[object]) -> str:
    """Return an assignment of a list, on several lines where it is long."""
    texts = [repr(value) for value in values]
    line = f"{name} = [{', '.join(texts)}]"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name} = [", *(f"    {text}," for text in texts), "]"])
