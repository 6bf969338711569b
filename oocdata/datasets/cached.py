"""Elements that were read and computed once, and lie in arrays since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from oocdata.blocks import AnyBlocks
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import ArrayRequest
from oocdata.datasets.spec import Spec, leaves, map_tree
from oocdata.datasets.zip import Zip
from oocdata.engines.source import Source

__all__ = ["Cached"]


@dataclass(frozen=True, eq=False, repr=False)
class Cached(Dataset):
    """A dataset whose elements lie in arrays; made by `Dataset.cache`.

    It is selected and split as the dataset that it was made of is, so that no two parts share a row
    of that; and read from the arrays.

    Attributes
    ----------
    chosen : Zip
        Of the positions in the arrays and the elements that they were made of.
    stored : tree of View
        An array for each of an element's, as many rows as the whole dataset had elements.
    """

    chosen: Zip
    stored: Any

    def __repr__(self) -> str:
        return f"<Cached: {len(self)} elements of {self.chosen.parts[1]!r}>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def spec(self) -> Spec:
        """What an element was made."""
        spec: Spec = map_tree(lambda view: view.spec, self.stored)
        return spec

    @property
    def _inner(self) -> Dataset:
        return self.chosen

    def _of(self, members: Sequence[Any]) -> Self:
        (chosen,) = members
        return replace(self, chosen=chosen)

    @cached_property
    def _read(self) -> list[Dataset]:
        """The arrays, of each the rows that are chosen."""
        positions = self.chosen.parts[0].rows
        return [view[positions] for view in leaves(self.stored)]

    def requests(self, positions: NDArray[np.int64], draw: Draw) -> tuple[ArrayRequest, ...]:
        """Return the rows of the arrays."""
        return tuple(one for view in self._read for one in view.requests(positions, draw))

    def sources(self) -> list[Source]:
        """Return the arrays."""
        return [source for view in self._read for source in view.sources()]

    @property
    def blocks(self) -> AnyBlocks:
        """Those of the arrays."""
        return self._read[0].blocks

    @property
    def is_mapped(self) -> bool:
        """False: the functions ran before."""
        return False

    @property
    def _can_cut(self) -> list[bool]:
        return [True] * len(self._read)
