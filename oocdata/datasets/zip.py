"""Several datasets side by side: elements are tuples or dicts."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from numpy.typing import NDArray

from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.spec import Batch, Spec, leaves, map_tree
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError
from oocdata.index import Selection, repeated

__all__ = ["Zip", "zip"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Zip(Dataset):
    """Datasets of one length, side by side; made by `oocdata.zip`.

    Attributes
    ----------
    parts : tuple or dict of Dataset
    """

    parts: Any

    _described = ("parts",)

    def __repr__(self) -> str:
        return f"<Zip: {len(self)} elements of {self.parts!r}>"

    @property
    def _members(self) -> list[Dataset]:
        return list(leaves(self.parts))

    def __len__(self) -> int:
        return len(self._members[0])

    @property
    def spec(self) -> Spec:
        """The parts' specs, in the same tuple or dict."""
        spec: Spec = map_tree(lambda part: part.spec, self.parts)
        return spec

    def _gap_positions(self, gap: int) -> int:
        # A table that is looked up, ``table[numbers]``, shares its rows; parts beside it must not.
        own = [
            part
            for part in self._members
            if not (isinstance(part, View) and repeated(part.rows) is not None)
        ]
        return max(part._gap_positions(gap) for part in own or self._members)

    def sparse(self) -> Dataset:
        """Return the zip with rows of sparse matrices as they are stored; see `Dataset.sparse`."""
        if not any(part.has_sparse_rows for part in self._members):
            return Dataset.sparse(self)  # no `super()` where there are slots
        parts = map_tree(lambda part: part.sparse() if part.has_sparse_rows else part, self.parts)
        return replace(self, parts=parts)

    @property
    def has_sparse_rows(self) -> bool:
        """Whether `sparse` can be called."""
        return any(part.has_sparse_rows for part in self._members)

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return the parts' batches in the same tuple or dict."""
        batch: Batch = map_tree(lambda part: part.assemble(arrays, draw), self.parts)
        return batch

    def _select(self, positions: Selection) -> Self:
        return replace(self, parts=map_tree(lambda part: part._select(positions), self.parts))

    def _split_axis(
        self, sizes: Sequence[float], gap: int, axis: int | str | None
    ) -> tuple[Self, ...]:
        split = [part.split(*sizes, gap=gap, axis=axis) for part in self._members]
        return tuple(
            replace(self, parts=_filled(self.parts, iter(parts)))
            for parts in builtins.zip(*split, strict=True)
        )


def _filled(pattern: Any, parts: Iterator[Any]) -> Any:
    """Return a tuple or dict like another one, with these parts in their order."""
    return map_tree(lambda _: next(parts), pattern)


def zip(*datasets: Dataset | Mapping[str, Dataset]) -> Zip:  # noqa: A001  # as in tf.data and Grain
    """Put datasets of one length side by side.

    Parameters
    ----------
    *datasets : Dataset
        Elements become tuples; or one dict of datasets, and elements become dicts.

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is nothing to zip, or the lengths differ.

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
    if not members or not all(isinstance(member, Dataset) for member in members):
        raise ArgumentError(
            f"`zip` must get datasets, or one dict of them; got {datasets!r}. Open arrays with "
            "ooc.open."
        )
    lengths = [len(member) for member in members]
    if len(set(lengths)) > 1:
        raise ArgumentError(
            "zipped datasets must have one length, because element i of each goes together; got "
            f"{', '.join(map(str, lengths))}. Windows are fewer than rows: make the same windows "
            "of each part, or zip the rows that belong to them."
        )
    shapes = {member.sample_shape for member in members if len(member.sample_shape) > 1}
    if len(shapes) > 1:
        raise ArgumentError(
            "zipped datasets must have the same sample axes; got "
            f"{' and '.join(map(str, sorted(shapes)))}. Name the same axes in `open(axis=…)`."
        )
    return Zip(parts)
