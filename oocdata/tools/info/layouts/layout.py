"""Define `Listing`, the metadata of a file, and `Layout`, the description of a known layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from oocdata.datasets.open import open as open_view
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.opening import format_of, tree_of
from oocdata.formats.patterns import natural_key
from oocdata.formats.recognising import Format
from oocdata.formats.tree import Array, Tree


def expect(condition: object) -> None:
    """Raise `LookupError` unless a condition of a layout holds."""
    if not condition:
        raise LookupError("another layout")


@dataclass(frozen=True)
class Listing:
    """The names and metadata in the first of several files, read on demand."""

    target: str  # the target of `oocdata.open` as Python code: a path, a glob or a list
    paths: tuple[str, ...]  # of the files
    kind: Format
    tree: Tree | None  # the arrays of the first file, which is open; None for a ``.npy``
    options: Mapping[str, Any] = field(default_factory=dict)  # of `oocdata.open`: `external`

    @property
    def path(self) -> str:
        """The path of the first file."""
        return self.paths[0]

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.paths)

    @property
    def paths_code(self) -> str:
        """Code for the list of the paths; it needs ``import glob`` if it says so."""
        if self.files == 1 or self.target.startswith("["):
            return self.target if self.files > 1 else f"[{self.target}]"
        return f"sorted(glob.glob({self.target}{', recursive=True' * ('**' in self.target)}))"

    def root(self, *kinds: str, many_files: bool = False) -> list[str]:
        """Return the names below the root; LookupError for other kinds, or for many files."""
        expect(self.kind in kinds and (many_files or self.files == 1))
        return self.below("")

    @property
    def count_text(self) -> str:
        """``"12 files, the first of "``; empty for one file."""
        return f"{self.files:,} files, the first of " if self.files > 1 else ""

    def array(self, name: str) -> Array:
        """Return the metadata of an array; LookupError if there is none."""
        return self.arrays("", [name])[name]

    def arrays(self, group: str, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the metadata of arrays directly below a group, by default of all."""
        names = self.below(group) if names is None else names
        arrays = {name: self._array(f"{group}/{name}") for name in names}
        return {name: array for name, array in arrays.items() if array is not None}

    def below(self, group: str) -> list[str]:
        """Return the names directly below a group in natural order; empty without a group."""
        return sorted(self.tree.below(group) if self.tree else (), key=natural_key)

    def _array(self, name: str) -> Array | None:
        """Return the metadata of an array; None if there is none, or NumPy has no such dtype."""
        with suppress(SourceError, TypeError):
            if self.tree is not None:
                return self.tree.array(name)
            source = open_view(self.path).source
            return Array(source.shape, source.dtype)
        return None

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array or a group; empty if there is neither."""
        return {} if self.tree is None else self.tree.attributes(name)

    def is_one_array(self, name: str, **options: Any) -> bool:
        """Return whether `open` takes an array of all files as one."""
        with suppress(SourceError, ArgumentError):
            open_view([*self.paths], name, **self.options, **options)
            return True
        return False


@contextmanager
def listing_of(target: str, paths: Sequence[str], **options: Any) -> Iterator[Listing]:
    """Open the first of several files, and list it; `target` is the code for all of them."""
    path, kind = paths[0], format_of(paths[0])
    if kind == "npy":
        yield Listing(target, tuple(paths), kind, None)
        return
    with tree_of(path, kind, **options) as tree:
        yield Listing(target, tuple(paths), kind, tree, options)


_FEWEST_TO_SPLIT = 10
_WIDTH = 96
"""The longest line of code."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A known layout of a file: its name, the amount of data, and code that opens it."""

    name: str  # of the data set, or of the format
    summary: str  # "200 demos, 34,112 steps"
    code: tuple[str, ...]  # lines of Python up to the first batch
    keys: tuple[str, ...]  # the main arrays, for `oocdata info` to describe; the largest first
    whole: str = ""  # pattern of all arrays like the first one; empty for the first key itself
    axis: int | None = 0  # with which `oocdata info` opens the keys; None: each file is one row

    @property
    def sentence(self) -> str:
        """``"robomimic: 200 demos, 34,112 steps"``."""
        return f"{self.name}: {self.summary}"


Recogniser: TypeAlias = Callable[[Listing], Layout]
"""A function that returns the layout of a file, or raises (a LookupError, …) for another layout."""


def lines(text: str, batch: str = "x, y") -> tuple[str, ...]:
    """Return the lines of a text that defines `train`, and lines that read a `batch` of it."""
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
    """Return the line that splits a dataset by `count` items; few items are all for training."""
    if count < _FEWEST_TO_SPLIT:
        return f"train = {name}"
    return f"train, val = {name}.split(0.9, 0.1{more})"


def listed(name: str, values: Iterable[object]) -> str:
    """Return the assignment of a list to a name, on several lines if it is long."""
    texts = [repr(value) for value in values]
    line = f"{name} = [{', '.join(texts)}]"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name} = [", *(f"    {text}," for text in texts), "]"])
