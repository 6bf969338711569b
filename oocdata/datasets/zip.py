"""Define `Zip`, datasets of equal length side by side, and `Cached`, elements read from arrays.

Elements of a zip are tuples or dicts. Elements of a cache were computed once.
"""

from __future__ import annotations

import builtins
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.concat import storages_of
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.patches import Patches
from oocdata.datasets.spec import Batch, Spec, leaves, map_tree
from oocdata.datasets.view import View
from oocdata.engines.alike import common_names
from oocdata.engines.memory_array import Numbers
from oocdata.errors import ArgumentError, PairingWarning
from oocdata.threads import cached_property

_DIGITS = re.compile("[0-9]+")


@dataclass(frozen=True, eq=False, repr=False)
class Zip(Dataset):
    """Datasets of equal length side by side; made by `oocdata.zip`.

    Attributes
    ----------
    parts : tuple or dict of Dataset
    """

    parts: Any

    def __repr__(self) -> str:
        return f"<Zip: {len(self)} elements of {self.parts!r}>"

    @cached_property
    def _members(self) -> list[Dataset]:
        return list(leaves(self.parts))

    def _with_members(self, members: Sequence[Any]) -> Self:
        rest = iter(members)
        return replace(self, parts=map_tree(lambda _: next(rest), self.parts))

    @cached_property
    def spec(self) -> Spec:
        return map_tree(lambda part: part.spec, self.parts)

    def _as_sparse(self) -> Dataset | None:
        pairs = [(part, part._as_sparse()) for part in self._members]
        if all(sparse is None for _, sparse in pairs):
            return None
        return self._with_members([part if sparse is None else sparse for part, sparse in pairs])

    def _in_range(self, at: int, places: range) -> NDArray[np.bool_]:
        masks = [part._in_range(at, places) for part in self._multi_axis_members]
        mask: NDArray[np.bool_] = np.all(masks, axis=0)
        return mask

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        return map_tree(lambda part: part.assemble(arrays, positions, draw), self.parts)


def zip(  # noqa: A001  # as in tf.data and Grain
    *datasets: Dataset | Sequence[Dataset] | Mapping[str, Dataset],
) -> Zip:
    """Combine datasets of equal length, element by element.

    Parameters
    ----------
    *datasets : Dataset
        Elements of the result are tuples; or one dict of datasets for elements that are dicts.

    Returns
    -------
    Zip
        Of the same length.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there are no datasets, or their lengths or several sample axes differ, or patches are cut
        from rows of other shapes, and so at other places.
    oocdata.errors.MismatchedPartsError
        If the names of several sample axes say that one goes together with another one.
    oocdata.errors.PairingWarning
        If files of one row each, such as images and masks, have the same numbers in their names for
        some pairs, and others for the rest: a file may be missing.

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> image, label = ooc.open(np.zeros((10, 2))), ooc.open(np.arange(10))
    >>> ooc.zip({"image": image, "label": label})[3]
    {'image': array([0., 0.]), 'label': np.int64(3)}
    """
    parts: Any = datasets
    if len(datasets) == 1 and isinstance(datasets[0], Mapping):
        parts = dict(datasets[0])
    elif len(datasets) == 1 and isinstance(datasets[0], tuple | list):
        parts = tuple(datasets[0])
    members = list(leaves(parts))
    others = [member for member in members if not isinstance(member, Dataset)]
    if others or _has_empty(parts):
        got = f"an object of type {type(others[0]).__name__}" if others else f"{parts!r}"
        raise ArgumentError(
            f"`zip` must get datasets, or one dict of them; got {got}. Open arrays with ooc.open."
        )
    shapes = {member.sample_shape for member in members if len(member.sample_shape) > 1}
    if len(shapes) > 1:
        raise ArgumentError(
            "zipped datasets must have the same sample axes; got "
            f"{' and '.join(map(str, sorted(shapes)))}. Name the same axes in `open(axis=…)`."
        )
    grids = {(bool(each.step), each.grid) for each in members if isinstance(each, Patches)}
    if len(grids) > len({is_grid for is_grid, _ in grids}):
        got = " and ".join(str(each) for each in members if isinstance(each, Patches))
        raise ArgumentError(
            f"zipped patches must be of the same places; got {got}. Cut the rows to the same "
            "size first, or zip them first: ooc.zip(rows, masks).patches(…)."
        )
    several = (member for member in members if len(member.sample_shape) > 1)
    names = [rows for member in several for _, rows in storages_of(member)]
    common_names([rows for rows in names if len(rows) > 1])
    lengths = [len(member) for member in members]
    if len(set(lengths)) > 1:
        hint = (
            "Windows are fewer than rows, and patches more: make the same windows of each part, or "
            "zip the rows that belong to each, repeated for patches: view[np.repeat(rows, 8)]."
        )
        storages = [member.storage for member in members if isinstance(member, View)]
        if len(storages) > 1 and all(one.row_files or one.single_rows for one in storages):
            hint = "To pair files by name, see `ooc.join`: on=(names, names), from `parts.names`."
        elif {len(one.parts) for one in storages} & set(lengths) - {1}:
            hint = "To make each file one element, open the files with axis=None."
        raise ArgumentError(
            "zipped datasets must have one length, because element i of each goes together; got "
            f"{', '.join(map(str, lengths))} for {'; '.join(map(str, members))}. {hint}"
        )
    if (pair := _unlike_files(members)) is not None:
        warnings.warn(
            "files are paired by their places in the lists, and the numbers in their names differ "
            f"for some, e.g. {pair[0]} and {pair[1]}. To pair files by name, see `ooc.join`.",
            PairingWarning,
            stacklevel=2,
        )
    return Zip(parts)


def _has_empty(tree: Any) -> bool:
    """Return whether a tuple or dict in a tree, or the tree, is empty."""
    if not isinstance(tree, tuple | dict):
        return False
    return not tree or any(map(_has_empty, tree.values() if isinstance(tree, dict) else tree))


def _unlike_files(members: Sequence[Dataset]) -> tuple[str, str] | None:
    """Return two paired files with other numbers in their names, if most likely one is missing.

    That is if some names have the same numbers, and some others; None if there are no such files.
    Only for rows in the order of their files: others may be paired at random.
    """
    views = [
        member
        for member in members
        if isinstance(member, View)
        and (member.storage.row_files or member.storage.single_rows)
        and isinstance(member.rows, range)
    ]
    paths = [[path or "" for path, _ in view.parts.where] for view in views]
    for view, names in builtins.zip(views[1:], paths[1:], strict=True):
        if not {*names}.isdisjoint(paths[0]):
            continue
        pairs = [
            (paths[0][at], names[to])
            for at, to in builtins.zip(views[0].parts.numbers, view.parts.numbers, strict=True)
        ]
        unlike = [pair for pair in pairs if _numbers_in(pair[0]) != _numbers_in(pair[1])]
        if 0 < len(unlike) < len(pairs):
            return unlike[0]
    return None


def _numbers_in(path: str) -> list[int]:
    return list(map(int, _DIGITS.findall(path.rpartition(os.sep)[2])))


def enumerated(dataset: Dataset) -> Zip:
    """Return pairs ``(position, element)``; see `Dataset.enumerate`."""
    return Zip((View.of(Numbers(len(dataset))), dataset))


@dataclass(frozen=True, eq=False, repr=False)
class Cached(Dataset):
    """A dataset whose elements were computed and are read from arrays; made by `Dataset.cache`.

    It is selected and split like the original dataset, so that no two parts share a row of the
    original arrays.

    Attributes
    ----------
    chosen : Zip
        Pairs (position in the arrays, element of the original dataset).
    stored : tree of View
        One array for each array of an element, with a row for each element of the original dataset.
    """

    chosen: Zip
    stored: Any

    def __repr__(self) -> str:
        return f"<Cached: {len(self)} elements of {self.chosen.parts[1]!r}>"

    @cached_property
    def spec(self) -> Spec:
        return map_tree(lambda view: view.spec, self.stored)

    @property
    def _split_members(self) -> tuple[Dataset]:
        return (self.chosen,)

    def _with_members(self, members: Sequence[Any]) -> Self:
        (chosen,) = members
        return replace(self, chosen=chosen)

    @cached_property
    def _members(self) -> list[Dataset]:
        positions = self.chosen.parts[0].rows
        return [view[positions] for view in leaves(self.stored)]
