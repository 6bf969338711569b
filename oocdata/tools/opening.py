"""What a tool is given: a path, several paths, or a dataset that is open already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypedDict, Unpack

from numpy.typing import DTypeLike

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.open import open as open_view
from oocdata.datasets.ragged import Ragged
from oocdata.datasets.spec import as_dtype, leaves
from oocdata.datasets.view import View
from oocdata.engines.dtypes import dtype_text, is_small_float
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import Axis, Missing, files_matching, local_path
from oocdata.formats.patterns import Key, said
from oocdata.formats.pictures import Pictures

__all__ = ["OpenArguments", "Opening", "which_rows"]


_NUMBERS = "biufc"


class OpenArguments(TypedDict, total=False):
    """The arguments of `oocdata.open` besides target and key."""

    axis: Axis
    dtype: DTypeLike | None
    shape: Sequence[int] | None
    offset: int
    missing: Missing | None
    external: bool
    verify: bool | str | os.PathLike[str] | None
    field: str | Sequence[str]
    decode: bool
    pad: float | None
    format: Literal["text"] | None
    pictures: Pictures | None
    cache: str | os.PathLike[str] | None
    store: Any


@dataclass(frozen=True, slots=True)
class Opening:
    """What a tool was given: what `oocdata.open` takes with its arguments, or a dataset.

    Every tool makes one by `Opening.of`; the commands make it themselves and hand it on.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> opening = Opening.of("sim.h5", "/u", axis=1)
    >>> opening.name, opening.code()
    ('sim.h5 /u', "ooc.open('sim.h5', '/u', axis=1)")
    >>> opening = Opening.of(ooc.open(np.zeros((10, 3))).windows(2))
    >>> opening.name, opening.dataset()
    ('an array in memory', <Windows: 9 elements of 2 rows>)
    """

    target: Any
    key: Key | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)  # others, where not the usual ones

    @classmethod
    def of(cls, target: Any, key: Key | None = None, **arguments: Unpack[OpenArguments]) -> Opening:
        """Return what a tool was given: an Opening, a Dataset, or what `oocdata.open` takes.

        With a Dataset, which is open already, any other argument is an ArgumentError.
        """
        given: dict[str, Any] = dict(arguments)
        for name in given.keys() - OpenArguments.__annotations__.keys():
            raise TypeError(f"there must be such an argument of oocdata.open; got {name!r}.")
        store = given.pop("store", None)
        if isinstance(target, Opening):
            target, key, given = target.target, key or target.key, {**target.arguments, **given}
        if store is not None and not isinstance(target, Dataset):
            from oocdata.stores.given import in_store  # slow to import

            several = isinstance(target, list | tuple)
            target = (
                [in_store(store, one) for one in target] if several else in_store(store, target)
            )
        if not isinstance(given.get("dtype"), str | None):
            given["dtype"] = dtype_text(as_dtype(given["dtype"]))
        if given.get("shape") is not None:
            given["shape"] = tuple(map(int, given["shape"]))
        usual = (None, False, ())
        given = {
            name: value
            for name, value in given.items()
            if value not in usual or (name == "pad" and value is not None)
        }
        opening = cls(_local(target), key, given)
        if isinstance(target, Dataset):
            left = opening.given() if store is None else {"store": store}
            for name, value in left.items():
                raise ArgumentError(
                    f"`{name}` must be left out for a {type(target).__name__}, which is open "
                    f"already; got {value!r}. Open what it was opened from."
                )
        return opening

    @property
    def axis(self) -> Axis:
        """The sample axes."""
        found: Axis = self.arguments.get("axis", 0)
        return found

    @property
    def is_paths(self) -> bool:
        """Whether it is a path or URL, or some of them; those are text."""
        return all(isinstance(one, str) for one in _each(self.target))

    def given(self) -> dict[str, Any]:
        """Return the arguments that differ from the usual ones, the target left out."""
        return {**({} if self.key is None else {"key": self.key}), **self.arguments}

    def dataset(self, *, unequal: bool = False) -> Dataset:
        """Return the dataset, or open the file; raises what `oocdata.open` does.

        With `unequal`, rows may be of unequal length, or sparse. Otherwise rows of unequal length
        are filled up where `pad` is given, also those of a single array.
        """
        if isinstance(self.target, Dataset):
            found: Dataset = self.target
        elif isinstance(getattr(self.target, "dataset", None), Dataset):
            kind = type(self.target).__name__
            raise ArgumentError(f"`target` must be a Dataset; got a {kind}. Give `.dataset` of it.")
        else:
            found = open_view(self.target, **self.given())
        if not found.is_composed or unequal:
            return found
        if isinstance(found, Ragged) and "pad" in self.arguments:
            return found.pad(value=self.arguments["pad"])
        hint = "In Python, give what `.sparse()` was called of"
        if isinstance(found, Ragged):
            is_open = isinstance(self.target, Dataset)
            hint = f"Fill them up: {'give what `.pad()` makes of them' if is_open else 'pad=0'}"
        raise ArgumentError(f"`target` must have dense rows; got {found!r}. {hint}.")

    def numbers(self) -> Dataset:
        """Return the dataset; an array of it that holds no numbers is an UnsupportedDtypeError."""
        dataset = self.dataset()
        for leaf in leaves(dataset.spec):
            if leaf.dtype.kind not in _NUMBERS:
                hint = "Make numbers of them in Python, in `.map`"
                if is_small_float(leaf.dtype):
                    hint = "Convert them, by `.astype('f4')`"
                for name in leaf.dtype.names or ():
                    if leaf.dtype[name].base.kind in _NUMBERS:
                        hint = f"Give a field, such as field={name!r}"
                        break
                message = f"elements must be numbers; got {leaf.kind}. {hint}."
                path = next((source.storage().path for source in dataset.sources()), None)
                raise UnsupportedDtypeError(message, path=path)
        return dataset

    def view(self, *, unequal: bool = False) -> View:
        """Return the view, or open the file as one; another dataset is an ArgumentError."""
        dataset = self.dataset(unequal=unequal)
        if not isinstance(dataset, View):
            raise ArgumentError(
                f"`target` must be a path, or a View as `oocdata.open` gives; got {dataset!r}. "
                "Give the View that it is made from."
            )
        return dataset

    def paths(self) -> list[str]:
        """Return each file by itself: of a list, or of a glob in natural order (2 before 10)."""
        found = []
        for one in _each(self.target):
            if not isinstance(one, str):
                raise ArgumentError(f"`target` must be the path of a file or folder; got {one!r}.")
            path = local_path(one)
            found += files_matching(path) or [path]
        if not found:
            raise ArgumentError("`target` must name at least one file; got an empty list.")
        return found

    @property
    def name(self) -> str:
        """The file, as seen from the current folder, and the dataset in it: a title."""
        if isinstance(self.target, Dataset):
            storages = [source.storage() for source in self.target.sources()]
            key = storages[0].key if len(storages) == 1 else None
            paths = [storage.path for storage in storages if storage.path is not None]
            files = [file.path for storage in storages for file in storage.files]
            paths = list(dict.fromkeys(files if len(files) > len(paths) else paths))
        else:
            key = None if self.key is None else said(self.key)
            paths = [one for one in _each(self.target) if isinstance(one, str)]
        if not paths:
            return "an array in memory"
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        first = paths[0].removeprefix(os.path.join(os.getcwd(), ""))
        return f"{first}{more}" + (f" {key}" if key else "")

    def code(self) -> str:
        """Return the call of `oocdata.open` in Python, with the arguments that matter."""
        given = self.given()
        key = given.pop("key", None)
        words = [repr(self.target) if self.is_paths else "array"]
        words += [] if key is None else [repr(key)]
        return f"ooc.open({', '.join([*words, *(f'{name}={given[name]!r}' for name in given)])})"


def which_rows(dataset: Dataset) -> str:
    """Return in words which rows of an array a dataset is made of.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> train, _ = ooc.open(np.zeros((50, 3))).split(0.6, 0.4)
    >>> which_rows(train)
    '30 of 50 rows: 0 to 29'
    """
    if not isinstance(dataset, View):
        return repr(dataset)
    number, rows = len(dataset), dataset.rows
    total = prod(dataset.source.shape[axis] for axis in dataset.axes)
    if not number:
        return "no rows"
    if isinstance(rows, range) and rows.step == 1:
        if number == total:
            return f"all {number:,} rows"
        return f"{number:,} of {total:,} rows: {rows[0]:,} to {rows[-1]:,}"
    return f"{number:,} rows, chosen of {total:,}"


def _each(target: Any) -> Sequence[Any]:
    return target if isinstance(target, list | tuple) else [target]


def _local(target: Any) -> Any:
    """Return paths as text without ``file://``; all else as it is."""
    if isinstance(target, list | tuple):
        return [_local(one) for one in target]
    target = os.fspath(target) if isinstance(target, os.PathLike) else target
    is_local = isinstance(target, str) and target.startswith("file://")
    return local_path(target) if is_local else target
