"""Several datasets side by side: elements are tuples or dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.dataset import Blocks, Dataset, Draw, Request
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

    def __repr__(self) -> str:
        return f"<Zip: {len(self)} elements of {self.parts!r}>"

    @property
    def _datasets(self) -> list[Dataset]:
        return list(leaves(self.parts))

    def __len__(self) -> int:
        return len(self._datasets[0])

    @property
    def spec(self) -> Spec:
        """The parts' specs, in the same tuple or dict."""
        spec: Spec = map_tree(lambda part: part.spec, self.parts)
        return spec

    @property
    def blocks(self) -> Blocks:
        """Those of the part with the longest blocks: the one that costs most to read badly."""
        return max((part.blocks for part in self._datasets), key=lambda blocks: blocks.length)

    @property
    def is_mapped(self) -> bool:
        """Whether any part is."""
        return any(part.is_mapped for part in self._datasets)

    def gap_positions(self, gap: int) -> int:
        """Return the positions to drop so that `gap` rows of every part lie between neighbours.

        A table that is looked up, ``table[numbers]``, shares its rows; what it stands beside must
        not.
        """
        own = [
            part
            for part in self._datasets
            if not (isinstance(part, View) and repeated(part.rows) is not None)
        ]
        return max(part.gap_positions(gap) for part in own or self._datasets)

    def requests(self, positions: NDArray[np.int64]) -> tuple[Request, ...]:
        """Return the rows of each part."""
        return tuple(request for part in self._datasets for request in part.requests(positions))

    def assemble(self, arrays: Iterator[NDArray[Any]], draw: Draw) -> Batch:
        """Return the parts' batches in the same tuple or dict."""
        batch: Batch = map_tree(lambda part: part.assemble(arrays, draw), self.parts)
        return batch

    def select(self, positions: Selection) -> Self:
        """Return the elements at checked positions of every part."""
        return replace(self, parts=map_tree(lambda part: part.select(positions), self.parts))


def zip(*datasets: Dataset | Mapping[str, Dataset]) -> Zip:  # noqa: A001  # as in tf.data and Grain
    """Put datasets of one length side by side.

    Parameters
    ----------
    *datasets : Dataset
        Elements become tuples; or one dict of datasets, and elements become dicts.

    Returns
    -------
    Zip

    Raises
    ------
    oocdata.errors.ArgumentError
        If there is nothing to zip, or the lengths differ.

    Examples
    --------
    >>> import oocdata as ooc
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
            f"zipped datasets must have one length; got {', '.join(map(str, lengths))}. "
            "Cut the longer ones: a[:n]."
        )
    return Zip(parts)
