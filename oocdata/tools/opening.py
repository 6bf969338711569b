"""Define `Opening`, the target of a tool: a path, several paths, or an open dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oocdata.advice import as_typed
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.open import open as open_view
from oocdata.datasets.ragged import Ragged
from oocdata.datasets.spec import leaves
from oocdata.datasets.view import View
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import Axis, files_matching, local_path
from oocdata.formats.patterns import Key, key_label

_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True)
class Opening:
    """The target of a tool: arguments of `oocdata.open`, or an open dataset.

    Each function makes an `Opening` with `Opening.of`; the commands make and pass one themselves.
    """

    target: Any
    key: Key | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)  # the others, without defaults

    @classmethod
    def of(cls, target: Any, key: Key | None = None, **arguments: Any) -> Opening:
        """Return the Opening of a target: an Opening, a Dataset, or a target of `oocdata.open`."""
        if isinstance(target, Opening):
            arguments = {**target.arguments, **arguments}
            target, key = target.target, key or target.key
        defaults: dict[str, Any] = {"pad": (None,), "axis": (0,)}  # 0 is a pad, None an axis
        arguments = {
            name: value
            for name, value in arguments.items()
            if value not in defaults.get(name, (None, False, ()))
        }
        if isinstance(target, Dataset) and key is not None:
            raise ArgumentError(
                f"`key` must be left out for a {type(target).__name__}, which is open already; got "
                f"{key!r}. Give the path instead."
            )
        return cls(_local(target), key, arguments)

    @property
    def axis(self) -> Axis:
        """The sample axes."""
        axis: Axis = self.arguments.get("axis", 0)
        return axis

    @property
    def is_paths(self) -> bool:
        """Whether the target is a path or URL, or a list of them, as text."""
        return all(isinstance(part, str) for part in _as_list(self.target))

    def keywords(self) -> dict[str, Any]:
        """Return the arguments beside the target that differ from their defaults."""
        return {**({} if self.key is None else {"key": self.key}), **self.arguments}

    def dataset(self, *, unequal: bool = False) -> Dataset:
        """Return the dataset, or open the file; raise the errors of `oocdata.open`.

        With `unequal`, rows may be of unequal length, or sparse. Otherwise rows of unequal length
        are padded if there is a `pad`, also the rows of a single array.
        """
        if isinstance(self.target, Dataset):
            dataset: Dataset = self.target
        elif isinstance(getattr(self.target, "dataset", None), Dataset):
            kind = type(self.target).__name__
            raise ArgumentError(f"`target` must be a Dataset; got a {kind}. Give `.dataset` of it.")
        else:
            dataset = open_view(self.target, **self.keywords())
        if not dataset.is_multi_array or unequal:
            return dataset
        if isinstance(dataset, Ragged) and "pad" in self.arguments:
            return dataset.pad(value=self.arguments["pad"])
        hint = "In Python, give the dataset without `.sparse()`"
        if isinstance(dataset, Ragged):
            is_open = isinstance(self.target, Dataset)
            hint = f"Pad them: {'give the result of its `.pad()`' if is_open else 'pad=0'}"
        raise ArgumentError(f"`target` must have dense rows; got {dataset!r}. {hint}.")

    def numbers(self) -> Dataset:
        """Return the dataset; raise `UnsupportedDtypeError` unless all its arrays are numeric."""
        dataset = self.dataset()
        if isinstance(dataset, View) and is_small_float(dataset.dtype):
            return dataset.astype("f4")  # exact
        for leaf in leaves(dataset.spec):
            if leaf.dtype.kind not in _NUMBERS:
                raise UnsupportedDtypeError(
                    f"elements must be numbers; got {leaf.kind}. Give a field of structured rows, "
                    "open encoded pictures with `pictures`, or convert them in Python, with "
                    "`.astype('f4')` or in `.map`.",
                    path=next((source.storage().path for source in dataset.sources()), None),
                )
        return dataset

    def view(self, *, unequal: bool = False) -> View:
        """Return the view, or open the file as one; raise `ArgumentError` for another dataset."""
        dataset = self.dataset(unequal=unequal)
        if not isinstance(dataset, View):
            raise ArgumentError(
                f"`target` must be a path, or a View from `oocdata.open`; got {dataset!r}. "
                "Give the View that it is made from."
            )
        return dataset

    def paths(self) -> list[str]:
        """Return the path of each file; a glob gives its files in natural order (2 before 10)."""
        paths = []
        for part in _as_list(self.target):
            if not isinstance(part, str):
                raise ArgumentError(f"`target` must be the path of a file or folder; got {part!r}.")
            paths += files_matching(part) or [part]
        if not paths:
            raise ArgumentError("`target` must name at least one file; got an empty list.")
        return paths

    @property
    def name(self) -> str:
        """A title: the path relative to the current folder, and the key."""
        if isinstance(self.target, Dataset):
            storages = [source.storage() for source in self.target.sources()]
            key = storages[0].key if len(storages) == 1 else None
            paths = [storage.path for storage in storages if storage.path is not None]
            files = [file.path for storage in storages for file in storage.files]
            paths = list(dict.fromkeys(files if len(files) > len(paths) else paths))
        else:
            key = None if self.key is None else key_label(self.key)
            paths = [part for part in _as_list(self.target) if isinstance(part, str)]
        if not paths:
            return "an array in memory"
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"{as_typed(paths[0])}{more}" + (f" {key}" if key else "")

    def code(self) -> str:
        """Return the call of `oocdata.open` in Python, without default arguments."""
        keywords = self.keywords()
        key = keywords.pop("key", None)
        arguments = [repr(self.target) if self.is_paths else "array"]
        arguments += [] if key is None else [repr(key)]
        arguments += [
            f"{name}={'ooc.' * (name == 'pictures')}{value!r}" for name, value in keywords.items()
        ]
        return f"ooc.open({', '.join(arguments)})"


def _as_list(target: Any) -> Sequence[Any]:
    return target if isinstance(target, list | tuple) else [target]


def _local(target: Any) -> Any:
    """Return paths as text, without ``~`` and ``file://``, and any other target unchanged."""
    if isinstance(target, list | tuple):
        return [_local(part) for part in target]
    return local_path(os.fspath(target)) if isinstance(target, str | os.PathLike) else target
